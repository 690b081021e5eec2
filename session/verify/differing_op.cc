#include "session/verify/differing_op.h"

#include <algorithm>

namespace steptape::session {

std::optional<DifferingOp> first_differing_op(const trace::Recording& recording,
                                              std::span<const recorder::OpDigest> eager,
                                              std::span<const PlanDigests> runs) {
  const std::size_t ops = std::min(eager.size(), recording.ops.size());
  for (trace::Index op = 0; op < ops; ++op) {
    if (eager[op].op != recording.operator_of(recording.ops[op]).full_name()) {
      return DifferingOp{.op = op, .instead = eager[op].op};
    }
    std::vector<trace::Digest> left;
    for (const PlanDigests& run : runs) {
      if (op < run.size() && run[op]) left.push_back(*run[op]);
    }
    const auto all_are = [&left](const trace::Digest& digest) {
      return std::ranges::count(left, digest) == std::ssize(left);
    };
    if (all_are(eager[op].digest)) continue;
    return DifferingOp{.op = op, .is_by_chance = !all_are(left.front())};
  }
  return std::nullopt;
}

}  // namespace steptape::session
