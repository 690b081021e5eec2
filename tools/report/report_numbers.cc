#include <algorithm>

#include "diff/numerics/numeric_words.h"
#include "tools/cli/json.h"
#include "tools/diff/numerics.h"
#include "tools/dump/dumps.h"
#include "tools/report/report_data.h"
#include "trace/text/text.h"
#include "trace/value.h"

namespace steptape::tools {
namespace {

/// The recorded value of a scalar site in words; empty where the file does not hold it.
std::string recorded_value(const trace::Recording& recording, const trace::ScalarSite& site) {
  if (site.op != trace::kNone) {
    const trace::Value& argument = recording.ops[site.op].inputs[site.argument];
    const auto* list = std::get_if<trace::List>(&argument.data);
    if (site.item == trace::kNone || list == nullptr) return trace::words_of(argument);
    return trace::words_of((*list)[site.item]);
  }
  const trace::Blob& content = recording.buffers[site.buffer].content;
  const auto tensor = std::ranges::find(recording.tensors, site.buffer, &trace::Tensor::buffer);
  if (content == nullptr || tensor == recording.tensors.end()) return "";
  if (content->size() != bytes_of(tensor->dtype)) return "";
  return trace::words_of(trace::element_of(content->data(), tensor->dtype));
}

}  // namespace

Json report_numbers(const trace::Recording& recording) {
  const auto site_json = [&recording](const trace::ScalarSite& site) {
    return Json{{"op", signed_of(site.op)},     {"argument", signed_of(site.argument)},
                {"item", signed_of(site.item)}, {"buffer", signed_of(site.buffer)},
                {"formula", site.formula},      {"value", recorded_value(recording, site)}};
  };
  const auto number_json = [](const trace::Number& number) {
    return Json{{"value", trace::words_of(number.value)},
                {"op", signed_of(number.op)},
                {"formula", signed_of(number.formula)}};
  };
  return {
      {"formulas", formulas_json(recording)},           {"leaves", leaves_json(recording)},
      {"sites", each(recording.scalars, site_json)},    {"predicates", predicates_json(recording)},
      {"advances", advances_json(recording)},           {"reads", reads_json(recording)},
      {"numbers", each(recording.numbers, number_json)}};
}

namespace {

/// So many ops, and buffers at entry, are in a page: where every op of a long step left other bits,
/// those after the origins say little.
constexpr std::size_t kMostOps = 1000;
constexpr std::size_t kMostEntered = 8;

int rank_of(const diff::NumericOp& op) {
  if (op.is_noisy) return 3;
  switch (op.status) {
    case diff::NumericStatus::kOrigin:
      return 0;
    case diff::NumericStatus::kUnknown:
      return 1;
    case diff::NumericStatus::kReceiver:
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
  const auto op_json = [&](const diff::NumericOp& op) {
    Json json = numeric_op_json(op, a, b);
    json["cause"] = words_of_cause(op, a, b);
    return json;
  };
  return {{"compared", found.compared},
          {"origins", found.count(diff::NumericStatus::kOrigin)},
          {"receivers", found.count(diff::NumericStatus::kReceiver)},
          {"unknown", found.count(diff::NumericStatus::kUnknown)},
          {"noisy", found.noisy()},
          {"entered", words_of_entered(found, a.recording(), kMostEntered)},
          {"ops", each(ops, op_json)},
          {"left_out", found.ops.size() - ops.size()}};
}

}  // namespace steptape::tools
