#include "session/verify/verification.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <algorithm>
#include <new>

#include "live/generator_state.h"
#include "live/stopwatch.h"
#include "live/tensors.h"
#include "recorder/frontend_hints.h"
#include "recorder/op_digests.h"
#include "replayer/runtime/undo.h"
#include "session/verify/left_behind.h"
#include "trace/numbers.h"
#include "trace/refusals.h"

namespace steptape::session {
namespace {

/// An op that may leave other bits each time is run again so often; one that never did yet, up to
/// so often until it does.
constexpr unsigned kRepeats = 8;
constexpr unsigned kMostRepeats = 64;
/// A plan that differs from the eager step is run up to so often again, until it differs from
/// itself.
constexpr int kMostLooks = 16;

std::optional<trace::Digest> digest_of(const at::Tensor& tensor) {
  if (!tensor.defined()) return std::nullopt;
  if (live::unplannable_kind(tensor)) return trace::Digest{};
  return live::digest_with_shape(tensor);
}

/// For each tensor that the step finds, the first one that lies in the same memory.
std::vector<std::size_t> firsts_in_memory(const trace::Recording& recording) {
  std::vector<std::size_t> firsts;
  std::unordered_map<trace::BufferId, std::size_t> first_on;
  const auto see = [&](trace::TensorId id) {
    const std::size_t position = firsts.size();
    firsts.push_back(
        id == trace::kNoTensor
            ? position
            : first_on.try_emplace(recording.tensors[id].buffer, position).first->second);
  };
  for (const trace::Tracked& tracked : recording.tracked) see(tracked.tensor);
  for (const trace::Input& input : recording.inputs) trace::for_each_tensor(input.value, see);
  return firsts;
}

/// Whether what the step finds shares memory in the same way. What it only reads may share some in
/// one call and none in another, as far as a plan is concerned.
bool lie_alike(const trace::Recording& a, const trace::Recording& b) {
  return firsts_in_memory(a) == firsts_in_memory(b);
}

class Verification {
 public:
  Verification(Variant& variant, const CallToVerify& call, recorder::Interceptor* interceptor)
      : variant_(variant),
        recording_(*variant.recording),
        executor_(*variant.executor),
        call_(call),
        entry_(call.entry),
        interceptor_(interceptor),
        kept_(variant.outputs->kept_memory()) {
    for (const std::size_t position : executor_.written()) {
      const trace::BufferId id = executor_.bound()[position];
      const trace::Buffer& buffer = recording_.buffers[id];
      regions_.push_back({entry_.memory[position], buffer.bytes, live::device_of(buffer.device)});
      if (buffer.role != trace::Role::kGradient) continue;
      const guards::TrackedGuard& tracked = variant.guards->tracked();
      const auto at = static_cast<std::size_t>(tracked.position_on(id));
      kept_.push_back(tracked.tensor_at(at).storage());
    }
  }

  Verified run(const recorder::StepFunction& eager) {
    const std::vector<at::Tensor> memory = variant_.outputs->memory_at_entry();
    Verified verified = compared(eager);
    kept_.clear();
    variant_.outputs->return_memory(memory);
    return verified;
  }

 private:
  Verified compared(const recorder::StepFunction& eager) {
    Verified verified;
    if (!take(undo_)) {
      verified.skipped = true;
      eager();
      return verified;
    }
    const bool has_suspects = interceptor_ != nullptr && !variant_.suspects.empty();
    const bool is_eager_first = has_suspects || variant_.guards->has_groups();
    is_eager_first ? eager_first(eager, verified) : plan_first(eager, verified);
    if (interceptor_ != nullptr && verified.divergence && verified.divergence->op_index < 0) {
      name_first_op(*verified.divergence);
    }
    return verified;
  }

  std::span<const at::Generator> generators() const {
    return executor_.draws_random() ? std::span<const at::Generator>(executor_.generators())
                                    : std::span<const at::Generator>();
  }

  bool take(replayer::Undo& undo) const {
    try {
      undo.take(regions_, generators());
      return true;
    } catch (const std::bad_alloc&) {
    } catch (const c10::OutOfMemoryError&) {
    }
    return false;
  }

  void plan_first(const recorder::StepFunction& eager, Verified& verified) {
    const std::optional<LeftBehind> planned = left_by_plan(verified);
    undo_.restore();
    verified.is_nothing = verified.changed && !verified.threw();
    if (verified.is_nothing) return;
    const std::vector<std::int64_t> counters = variant_.guards->counters();
    const recorder::Returned returned = run_eager(eager, verified);
    if (!planned) return;
    verified.divergence = difference(*planned, left_by_eager(returned));
    if (!verified.divergence) verified.divergence = compare_counters(counters);
  }

  /// Whether a number of the plan may be another one than when it was recorded.
  bool has_moving_numbers() const {
    return entry_.has_unseen_number || !recording_.leaves.empty() ||
           std::ranges::any_of(recording_.reads, [](const trace::HostRead& read) {
             return read.use == trace::ReadUse::kFree;
           });
  }

  recorder::Returned run_eager(const recorder::StepFunction& eager, Verified& verified,
                               std::span<recorder::Repeat> repeats = {}) {
    if (interceptor_ == nullptr) return eager();
    if (!has_moving_numbers() || !repeats.empty())
      return recorder::run_with_digests(eager, *interceptor_, eager_digests_, call_.exchanges,
                                        repeats);
    const auto unnoticed = [&eager] {
      const auto unnoticed = recorder::FrontendHints::make_current(nullptr);
      return eager();
    };
    recorder::Recorded recorded =
        recorder::record(unnoticed, call_.arguments, call_.objects, *interceptor_,
                         {recorder::Depth::kDigests, false, call_.exchanges});
    trace::Recording& proof = recorded.recording;
    recorder::Returned returned(std::move(recorded.results));
    for (const trace::Number& number : proof.numbers) returned.numbers.push_back(number.value);
    for (std::size_t i = 0; i < proof.op_digests.size(); ++i) {
      eager_digests_.push_back({proof.operator_of(proof.ops[i]).full_name(), proof.op_digests[i]});
    }
    // a front end has said of the recording what becomes of these, and says it of no other
    const auto is_told = [](const Refusal& refusal) {
      return refusal.code == RefusalCode::kHyperparameterChanged;
    };
    const bool is_whole = !recorded.is_warm_up() && std::ranges::all_of(proof.refusals, is_told);
    if (is_whole && lie_alike(proof, recording_)) prove(std::move(proof), verified);
    return returned;
  }

  void prove(trace::Recording proof, Verified& verified) const {
    const trace::Recording& plan = *variant_.recording;
    // what only a front end tells
    proof.effects = plan.effects;
    proof.updates = plan.updates;
    for (std::size_t i = 0; i < std::min(proof.optimizers.size(), plan.optimizers.size()); ++i) {
      proof.optimizers[i].has_formulas = plan.optimizers[i].has_formulas;
    }
    verified.proof = std::move(proof);
  }

  void eager_first(const recorder::StepFunction& eager, Verified& verified) {
    const std::vector<std::int64_t> counters = variant_.guards->counters();
    std::vector<recorder::Repeat> repeats;
    for (const SuspectOp& suspect : variant_.suspects) {
      repeats.push_back({suspect.op, kRepeats, suspect.is_known ? kRepeats : kMostRepeats});
    }
    const LeftBehind left = left_by_eager(run_eager(eager, verified, repeats));
    const std::optional<Divergence> of_counters = compare_counters(counters);
    replayer::Undo done;
    if (!take(done)) {
      verified.skipped = true;
      return;
    }
    for (recorder::Repeat& repeat : repeats) {
      overrides_.push_back({static_cast<trace::Index>(repeat.op), std::move(repeat.left)});
    }
    undo_.restore();
    const std::optional<LeftBehind> planned = left_by_plan(verified);
    done.restore();
    if (!planned) return;
    verified.divergence = judge_chances(repeats);
    if (!verified.divergence) verified.divergence = difference(*planned, left);
    if (!verified.divergence) verified.divergence = of_counters;
  }

  /// What speaks against ops that leave other bits each time, or were taken for such.
  std::optional<Divergence> judge_chances(const std::vector<recorder::Repeat>& repeats) const {
    std::optional<Divergence> found;
    for (std::size_t i = 0; i < repeats.size(); ++i) {
      SuspectOp& suspect = variant_.suspects[i];
      suspect.is_known |= repeats[i].differs;
      suspect.spread = std::max(suspect.spread, repeats[i].spread);
      std::string problem;
      if (!suspect.is_known) {
        problem = fmt::format(
            "left other bits in the plan than in the eager step, and the same ones each of {} "
            "times it ran again there",
            kMostRepeats);
      } else if (!overrides_[i].difference) {
        problem = "was not done by itself in the plan";
      } else {
        suspect.largest_difference =
            std::max(suspect.largest_difference, *overrides_[i].difference);
        if (*overrides_[i].difference <= kMostSpreads * suspect.spread) continue;
        problem = fmt::format(
            "differs from the eager step's by {:.1e} of its largest element, and from itself by "
            "{:.1e}",
            *overrides_[i].difference, suspect.spread);
      }
      if (found) continue;
      found = Divergence{name_of(suspect.op), problem, static_cast<std::int64_t>(suspect.op),
                         name_of(suspect.op)};
    }
    return found;
  }

  std::string name_of(trace::Index op) const {
    return recording_.operator_of(recording_.ops[op]).full_name();
  }

  void look_at_memory(LeftBehind& left) const {
    for (const replayer::Region& region : regions_) {
      left.written.push_back(live::full_digest({region.address, region.device, region.bytes}));
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

  /// None where the plan did not run to its end; `verified` then says why.
  std::optional<LeftBehind> left_by_plan(Verified& verified) {
    try {
      return left_by_plan();
    } catch (const replayer::Unproved& unproved) {
      verified.changed = unproved;
      verified.unproved = unproved;
    } catch (const replayer::AssumptionViolated& changed) {
      verified.changed = changed;
    } catch (const std::exception& error) {
      verified.changed = replayer::undone_for(error);
    }
    return std::nullopt;
  }

  /// An audit stops where a replay would; a trial proves the plan at what numbers it finds, but for
  /// those at which it is known to do something else.
  replayer::RunNumbers numbers_of_run() const {
    return {.leaves = entry_.leaves,
            .proofs = call_.proves_numbers ? &variant_.number_proofs : nullptr,
            .holds_pinned_only = !variant_.trusted};
  }

  live::Exchanges* exchanges() const {
    return variant_.guards->has_groups() ? call_.exchanges.get() : nullptr;
  }

  replayer::Inspection inspection(PlanDigests* digests) {
    return {.digests = digests, .overrides = overrides_, .is_compared = true};
  }

  LeftBehind left_by_plan() {
    LeftBehind left;
    const replayer::Outcome outcome = executor_.run(
        {.memory = entry_.memory,
         .numbers = numbers_of_run(),
         .exchanges = exchanges(),
         .inspection = inspection(interceptor_ != nullptr ? &plan_digests_ : nullptr)});
    left.numbers = outcome.numbers;
    for (const at::Tensor& result : outcome.results) left.results.push_back(digest_of(result));
    for (const at::Tensor& gradient : outcome.gradients)
      left.gradients.push_back(digest_of(gradient));
    look_at_memory(left);
    return left;
  }

  LeftBehind left_by_eager(const recorder::Returned& returned) const {
    LeftBehind left;
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
      const trace::Index input = trace::find_input(recording_, gradient.parameter);
      const at::Tensor parameter = input != trace::kNone
                                       ? call_.arguments[input].tensor
                                       : tracked.tensor(tracked.position_of(gradient.parameter));
      // a gradient that lies in memory it was given is compared with what was written
      const at::Tensor& exit = gradient.is_memory ? parameter : parameter.grad();
      left.gradients.push_back(is_bound(gradient.tensor) ? std::nullopt : digest_of(exit));
    }
    look_at_memory(left);
    return left;
  }

  std::optional<Divergence> difference(const LeftBehind& plan, const LeftBehind& eager) const {
    const auto written = [&](std::size_t i) -> std::optional<Divergence> {
      const trace::BufferId id = executor_.bound()[executor_.written()[i]];
      if (plan.written[i] == eager.written[i]) return std::nullopt;
      return digests_differ(recording_.buffers[id].path, plan.written[i], eager.written[i]);
    };
    return first_difference(plan, eager, recording_, written);
  }

  /// Finds the first op in which the plan and the eager step part. The plan runs some more times
  /// from the same state, to have digests of all ops and to see whether that one leaves other bits
  /// each time. The eager step's state is as before when it returns.
  void name_first_op(Divergence& divergence) {
    std::vector<PlanDigests> looks{plan_digests_};
    std::optional<DifferingOp> found = differing_op(looks);
    replayer::Undo eager;
    if (take(eager)) {
      for (int look = 0; look < kMostLooks && !(found && found->is_by_chance); ++look) {
        looks.push_back(digests_of_another_run());
        found = differing_op(looks);
      }
      eager.restore();
    }
    if (!found) return;
    if (!found->instead.empty()) {
      divergence.text += "; the eager step does `" + found->instead + "` there";
    }
    divergence.is_by_chance = found->is_by_chance;
    divergence.op_index = static_cast<std::int64_t>(found->op);
    divergence.op = name_of(found->op);
  }

  std::optional<DifferingOp> differing_op(const std::vector<PlanDigests>& looks) const {
    return first_differing_op(recording_, eager_digests_, looks);
  }

  /// Empty where the plan throws.
  PlanDigests digests_of_another_run() {
    PlanDigests digests;
    undo_.restore();
    executor_.start_over();
    try {
      executor_.run({.memory = entry_.memory,
                     .numbers = {.leaves = entry_.leaves},
                     .exchanges = exchanges(),
                     .inspection = inspection(&digests)});
    } catch (const std::exception&) {
      digests.clear();
    }
    return digests;
  }

  /// The plan leaves step counters alone; StepOutputs advances them as the eager step has just
  /// done.
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
  const CallToVerify& call_;
  const guards::Entry& entry_;
  recorder::Interceptor* interceptor_;
  PlanDigests plan_digests_;
  std::vector<replayer::Override> overrides_;
  std::vector<recorder::OpDigest> eager_digests_;
  std::vector<replayer::Region> regions_;
  /// The eager step may take tensors out of the program's objects, which the plan runs on.
  std::vector<c10::Storage> kept_;
  replayer::Undo undo_;
};

}  // namespace

void Verified::count_mismatch(const trace::Recording& plan) {
  if (!mismatch || changed || is_pinned || is_wrong()) return;
  divergence =
      Divergence{mismatch->path, "plan " + mismatch->expected + ", eager " + mismatch->found};
  if (mismatch->op >= plan.ops.size()) return;
  divergence->op_index = static_cast<std::int64_t>(mismatch->op);
  divergence->op = plan.operator_of(plan.ops[mismatch->op]).full_name();
}

std::string Verified::text() const {
  return divergence ? divergence->path + ": " + divergence->text : "";
}

Refusal Verified::refusal(RefusalCode code, const std::string& more) const {
  Refusal refusal = trace::make_refusal(code, text() + more);
  if (divergence) {
    refusal.op = divergence->op;
    refusal.op_index = divergence->op_index;
  }
  return refusal;
}

Verified verify(Variant& variant, const CallToVerify& call, const recorder::StepFunction& eager,
                recorder::Interceptor* interceptor) {
  const live::Stopwatch watch;
  Verified verified = Verification(variant, call, interceptor).run(eager);
  if (!verified.skipped && !verified.changed && !verified.is_wrong())
    variant.executor->note_agreement();
  verified.us = watch.us();
  return verified;
}

}  // namespace steptape::session
