#include "session/verify/left_behind.h"

#include <algorithm>
#include <utility>

#include "trace/text/text.h"

namespace steptape::session {
namespace {

std::string text(const std::optional<trace::Digest>& digest) {
  return digest ? text_of(*digest) : "undefined";
}

std::string path_of(const char* list, std::size_t i) {
  return std::string(list) + "[" + std::to_string(i) + "]";
}

}  // namespace

Divergence digests_differ(std::string path, const std::optional<trace::Digest>& plan,
                          const std::optional<trace::Digest>& eager) {
  return {std::move(path), "plan " + text(plan) + ", eager " + text(eager)};
}

std::optional<Divergence> first_difference(
    const LeftBehind& plan, const LeftBehind& eager, const trace::Recording& recording,
    const std::function<std::optional<Divergence>(std::size_t)>& written) {
  if (plan.results.size() != eager.results.size()) {
    return Divergence{"results.size", "plan " + std::to_string(plan.results.size()) + ", eager " +
                                          std::to_string(eager.results.size())};
  }
  for (std::size_t i = 0; i < plan.results.size(); ++i) {
    if (plan.results[i] == eager.results[i]) continue;
    return digests_differ(path_of("results", i), plan.results[i], eager.results[i]);
  }
  for (std::size_t i = 0; i < plan.numbers.size(); ++i) {
    const trace::Value a{trace::Real{plan.numbers[i]}};
    const trace::Value b{trace::Real{i < eager.numbers.size() ? eager.numbers[i] : 0}};
    if (a == b) continue;
    return Divergence{path_of("numbers", i),
                      "plan " + trace::print_value(a) + ", eager " + trace::print_value(b)};
  }
  for (std::size_t i = 0; i < plan.gradients.size(); ++i) {
    if (plan.gradients[i] == eager.gradients[i]) continue;
    return digests_differ(recording.exit_gradients[i].path(), plan.gradients[i],
                          eager.gradients[i]);
  }
  for (std::size_t i = 0; i < plan.written.size(); ++i) {
    if (auto divergence = written(i)) return divergence;
  }
  for (std::size_t i = 0; i < plan.generators.size(); ++i) {
    if (plan.generators[i] == eager.generators[i]) continue;
    return digests_differ(path_of("generator", i), plan.generators[i], eager.generators[i]);
  }
  return std::nullopt;
}

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
