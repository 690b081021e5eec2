#include "session/verification.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <chrono>
#include <new>

#include "live/device_bytes.h"
#include "live/generator_state.h"
#include "live/tensors.h"
#include "recorder/op_digests.h"
#include "replayer/run/undo.h"
#include "session/ulps.h"
#include "trace/refusals.h"
#include "trace/text.h"

namespace steptape::session {
namespace {

/// What one way of running the step left behind.
struct Left {
  std::vector<std::optional<trace::Digest>> results;
  std::vector<trace::Digest> written;
  std::vector<std::optional<trace::Digest>> gradients;
  std::vector<trace::Digest> generators;
  std::vector<double> numbers;
};

std::optional<trace::Digest> digest_of(const at::Tensor& tensor) {
  if (!tensor.defined()) return std::nullopt;
  if (live::unplannable_kind(tensor)) return trace::Digest{};
  return live::digest_with_shape(tensor);
}

class Verification {
 public:
  Verification(Variant& variant, const guards::Entry& entry, recorder::Interceptor* interceptor)
      : variant_(variant),
        recording_(*variant.recording),
        executor_(*variant.executor),
        entry_(entry),
        interceptor_(interceptor) {
    for (const std::size_t position : executor_.written()) {
      const trace::BufferId id = executor_.bound()[position];
      const trace::Buffer& buffer = recording_.buffers[id];
      regions_.push_back({entry.memory[position], buffer.bytes, live::device_of(buffer.device)});
      // the eager step may drop a gradient that the plan wrote in place
      if (buffer.role == trace::Role::kGradient) {
        const guards::TrackedGuard& tracked = variant_.guards->tracked();
        const auto at = static_cast<std::size_t>(tracked.position_on(id));
        kept_.push_back(tracked.tensor_at(at).storage());
      }
    }
  }

  Verified run(const recorder::StepFunction& eager) {
    Verified verified;
    std::optional<Left> planned;
    try {
      undo_.take(regions_, generators());
    } catch (const std::bad_alloc&) {
      verified.skipped = true;
    } catch (const c10::OutOfMemoryError&) {
      verified.skipped = true;
    }
    if (verified.skipped) {
      eager();
      return verified;
    }
    try {
      planned = left_by_plan();
    } catch (const replayer::Changed& changed) {
      verified.changed = changed;
    } catch (const std::exception& error) {
      verified.failure = error.what();
    }
    undo_.restore();
    keep(entry_, before_);
    const std::vector<std::int64_t> counters = variant_.guards->counters();
    std::vector<recorder::OpDigest> eager_digests;
    const recorder::Returned returned =
        interceptor_ != nullptr ? recorder::run_with_digests(eager, *interceptor_, eager_digests)
                                : eager();
    if (planned) verified.divergence = compare(*planned, left_by_eager(returned));
    if (planned && !verified.divergence) verified.divergence = compare_counters(counters);
    if (verified.divergence) {
      name_first_op(*verified.divergence, eager_digests);
      if (interceptor_ != nullptr) look_for_chance(*verified.divergence);
    }
    return verified;
  }

 private:
  std::span<const at::Generator> generators() const {
    return executor_.draws_random() ? std::span<const at::Generator>(executor_.generators())
                                    : std::span<const at::Generator>();
  }

  void look_at_memory(Left& left) const {
    for (const replayer::Region& region : regions_) {
      left.written.push_back(live::full_digest(region.address, region.device, region.bytes));
    }
    for (const at::Generator& generator : generators()) {
      const at::Tensor state = live::state_of(generator);
      left.generators.push_back(live::digest_of(state));
    }
  }

  bool is_bound(trace::TensorId id) const {
    if (id == trace::kNoTensor) return false;
    const auto placement = executor_.program().buffers[recording_.tensors[id].buffer].placement;
    return placement == replayer::Placement::kBound;
  }

  Left left_by_plan() {
    Left left;
    if (interceptor_ != nullptr) executor_.log_digests(plan_digests_);
    const replayer::Outcome outcome = executor_.run(entry_.memory, entry_.leaves);
    left.numbers = outcome.numbers;
    for (const at::Tensor& result : outcome.results) left.results.push_back(digest_of(result));
    for (const at::Tensor& gradient : outcome.gradients)
      left.gradients.push_back(digest_of(gradient));
    look_at_memory(left);
    keep(entry_, after_plan_);
    return left;
  }

  Left left_by_eager(const recorder::Returned& returned) const {
    Left left;
    const std::vector<at::Tensor>& results = returned.results;
    for (const trace::Value& number : returned.numbers) {
      left.numbers.push_back(trace::number_of(number));
    }
    for (std::size_t i = 0; i < results.size(); ++i) {
      const bool bound = i < recording_.results.size() && is_bound(recording_.results[i]);
      left.results.push_back(bound ? std::nullopt : digest_of(results[i]));
    }
    for (const trace::ExitGradient& gradient : recording_.exit_gradients) {
      const guards::TrackedGuard& tracked = variant_.guards->tracked();
      const at::Tensor parameter = tracked.tensor(tracked.position_of(gradient.parameter));
      // a gradient that lies in memory it was given is compared with what was written
      left.gradients.push_back(is_bound(gradient.tensor) ? std::nullopt
                                                         : digest_of(parameter.grad()));
    }
    look_at_memory(left);
    return left;
  }

  static std::string text(const std::optional<trace::Digest>& digest) {
    return digest ? text_of(*digest) : "undefined";
  }

  std::optional<Divergence> compare(const Left& plan, const Left& eager) const {
    const auto differ = [](std::string path, const auto& a, const auto& b) {
      return Divergence{std::move(path), "plan " + text(a) + ", eager " + text(b)};
    };
    if (plan.results.size() != eager.results.size()) {
      return Divergence{"results.size", "plan " + std::to_string(plan.results.size()) + ", eager " +
                                            std::to_string(eager.results.size())};
    }
    for (std::size_t i = 0; i < plan.results.size(); ++i) {
      if (plan.results[i] != eager.results[i]) {
        return differ("results[" + std::to_string(i) + "]", plan.results[i], eager.results[i]);
      }
    }
    for (std::size_t i = 0; i < plan.numbers.size(); ++i) {
      const trace::Value a{trace::Real{plan.numbers[i]}};
      const trace::Value b{trace::Real{i < eager.numbers.size() ? eager.numbers[i] : 0}};
      if (a == b) continue;
      return Divergence{"numbers[" + std::to_string(i) + "]",
                        "plan " + trace::print_value(a) + ", eager " + trace::print_value(b)};
    }
    for (std::size_t i = 0; i < plan.gradients.size(); ++i) {
      if (plan.gradients[i] != eager.gradients[i]) {
        return differ(recording_.exit_gradients[i].parameter + ".grad", plan.gradients[i],
                      eager.gradients[i]);
      }
    }
    for (std::size_t i = 0; i < plan.written.size(); ++i) {
      const trace::BufferId id = executor_.bound()[executor_.written()[i]];
      if (is_approximate(id)) {
        if (auto divergence = compare_ulps(i, id)) return divergence;
        continue;
      }
      if (plan.written[i] == eager.written[i]) continue;
      return differ(recording_.buffers[id].path, std::optional(plan.written[i]),
                    std::optional(eager.written[i]));
    }
    for (std::size_t i = 0; i < plan.generators.size(); ++i) {
      if (plan.generators[i] == eager.generators[i]) continue;
      return differ("generator[" + std::to_string(i) + "]", std::optional(plan.generators[i]),
                    std::optional(eager.generators[i]));
    }
    return std::nullopt;
  }

  bool is_approximate(trace::BufferId id) const {
    return std::ranges::find(variant_.approximate, id) != variant_.approximate.end();
  }

  /// The bytes of what fused kernels write, by position in `regions_`; empty for the rest.
  using Kept = std::vector<std::vector<std::byte>>;
  void keep(const guards::Entry& entry, Kept& kept) const {
    if (variant_.approximate.empty()) return;
    kept.clear();
    for (const std::size_t position : executor_.written()) {
      const trace::BufferId id = executor_.bound()[position];
      const trace::Buffer& buffer = recording_.buffers[id];
      kept.push_back(live::bytes_on_host(entry.memory[position], live::device_of(buffer.device),
                                         is_approximate(id) ? buffer.bytes : 0));
    }
  }

  std::optional<Divergence> compare_ulps(std::size_t i, trace::BufferId id) const {
    const auto tensor = std::ranges::find(recording_.tensors, id, &trace::Tensor::buffer);
    const std::vector<std::byte> now =
        live::bytes_on_host(regions_[i].address, regions_[i].device, regions_[i].bytes);
    const double ulps = distance_in_ulps(before_[i], after_plan_[i], now, tensor->dtype);
    variant_.largest_ulps = std::max(variant_.largest_ulps, ulps);
    if (ulps <= kMostUlps) return std::nullopt;
    return Divergence{recording_.buffers[id].path,
                      std::to_string(ulps) +
                          " units in the last place between the fused and the "
                          "eager update; at most " +
                          std::to_string(static_cast<int>(kMostUlps)) + " are taken"};
  }

  void name_first_op(Divergence& divergence, const std::vector<recorder::OpDigest>& eager) const {
    // fused updates are other ops than the eager step's
    const std::size_t ops = variant_.approximate.empty() ? recording_.ops.size() : 0;
    for (std::size_t i = 0; i < std::min(eager.size(), ops); ++i) {
      const std::string name = recording_.operator_of(recording_.ops[i]).full_name();
      if (eager[i].op != name) {
        divergence.text += "; the eager step does `" + eager[i].op + "` there";
      } else if (!plan_digests_[i] || *plan_digests_[i] == eager[i].digest) {
        continue;
      }
      divergence.op_index = static_cast<std::int64_t>(i);
      divergence.op = name;
      return;
    }
  }

  /// Runs the plan once more from the same state: an op that then leaves other bits than the first
  /// time is not to be blamed on the plan. The eager step's state is as before when it returns.
  void look_for_chance(Divergence& divergence) {
    std::vector<std::optional<trace::Digest>> again;
    replayer::Undo eager;
    try {
      eager.take(regions_, generators());
    } catch (const std::exception&) {
      return;  // there is no memory to find out
    }
    try {
      undo_.restore();
      executor_.start_over();
      executor_.log_digests(again);
      executor_.run(entry_.memory, entry_.leaves);
    } catch (const std::exception&) {
      again.clear();
    }
    eager.restore();
    for (std::size_t i = 0; i < std::min(again.size(), plan_digests_.size()); ++i) {
      if (!again[i] || !plan_digests_[i] || *again[i] == *plan_digests_[i]) continue;
      const std::string name = recording_.operator_of(recording_.ops[i]).full_name();
      divergence.text += "; op " + std::to_string(i) + " `" + name +
                         "` leaves other bits each time it runs (atomics): "
                         "torch.use_deterministic_algorithms(True) may help";
      return;
    }
  }

  /// The plan leaves step counters alone; Aftermath advances them as the eager step has just done.
  std::optional<Divergence> compare_counters(const std::vector<std::int64_t>& before) const {
    const std::vector<std::int64_t> now = variant_.guards->counters();
    const std::vector<trace::Advance> advances = variant_.guards->advances();
    for (std::size_t i = 0; i < now.size(); ++i) {
      const std::int64_t expected = before[i] + advances[i].by;
      if (now[i] == expected) continue;
      return Divergence{advances[i].path,
                        "plan " + std::to_string(expected) + ", eager " + std::to_string(now[i])};
    }
    return std::nullopt;
  }

  Variant& variant_;
  const trace::Recording& recording_;
  replayer::Executor& executor_;
  const guards::Entry& entry_;
  recorder::Interceptor* interceptor_;
  Kept before_, after_plan_;
  std::vector<std::optional<trace::Digest>> plan_digests_;
  std::vector<replayer::Region> regions_;
  std::vector<c10::Storage> kept_;
  replayer::Undo undo_;
};

}  // namespace

std::string Verified::text() const {
  return divergence ? divergence->path + ": " + divergence->text : "the plan threw: " + failure;
}

Refusal Verified::refusal(RefusalCode code, const std::string& more) const {
  Refusal refusal = trace::make_refusal(code, text() + more);
  if (divergence) {
    refusal.op = divergence->op;
    refusal.op_index = divergence->op_index;
  }
  return refusal;
}

Verified verify(Variant& variant, const guards::Entry& entry, const recorder::StepFunction& eager,
                recorder::Interceptor* interceptor) {
  const auto start = std::chrono::steady_clock::now();
  Verified verified = Verification(variant, entry, interceptor).run(eager);
  verified.us =
      std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count();
  return verified;
}

}  // namespace steptape::session
