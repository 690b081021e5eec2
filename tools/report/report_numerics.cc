#include <algorithm>

#include "diff/numerics/numeric_words.h"
#include "tools/diff/numerics.h"
#include "tools/report/report_parts.h"

namespace steptape::tools {
namespace {

using Json = nlohmann::ordered_json;

/// So many ops, and buffers at entry, are in a page: where every op of a long step left other bits,
/// those after the origins say little.
constexpr std::size_t kMostOps = 1000;
constexpr std::size_t kMostEntered = 8;

int rank_of(const diff::NumericOp& op) {
  if (op.is_noisy) return 3;
  switch (op.standing) {
    case diff::NumericStanding::kOrigin:
      return 0;
    case diff::NumericStanding::kUnknown:
      return 1;
    case diff::NumericStanding::kReceiver:
      break;
  }
  return 2;
}

}  // namespace

Json report_numerics(const diff::NumericDifferences& found, const diff::OpStream& a,
                     const diff::OpStream& b) {
  if (!found.is_compared()) return {{"not_compared", found.not_compared}};
  std::vector<diff::NumericOp> ops = found.ops;
  std::ranges::stable_sort(ops, {}, rank_of);
  ops.resize(std::min(ops.size(), kMostOps));
  Json list = Json::array();
  for (const diff::NumericOp& op : ops) {
    list.push_back(numeric_op_json(op, a, b));
    list.back()["cause"] = words_of_cause(op, a, b);
  }
  return {{"compared", found.compared},
          {"origins", found.count(diff::NumericStanding::kOrigin)},
          {"receivers", found.count(diff::NumericStanding::kReceiver)},
          {"unknown", found.count(diff::NumericStanding::kUnknown)},
          {"noisy", found.noisy()},
          {"entered", words_of_entered(found, a.recording(), kMostEntered)},
          {"ops", list},
          {"left_out", found.ops.size() - ops.size()}};
}

}  // namespace steptape::tools
