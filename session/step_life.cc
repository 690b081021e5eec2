#include "session/step_life.h"

#include <algorithm>
#include <chrono>
#include <random>

#include "replayer/analysis/refusals.h"
#include "replayer/optimizers/optimizers.h"
#include "replayer/passes/passes.h"
#include "session/exclusive_use.h"
#include "session/session_state.h"
#include "steptape/error.h"

namespace steptape::session {
namespace {

struct ToArgument {
  live::Argument operator()(at::Tensor& tensor) const { return {std::move(tensor), {}, true}; }
  live::Argument operator()(bool value) const { return {{}, {value}, false}; }
  live::Argument operator()(std::int64_t value) const { return {{}, {value}, false}; }
  live::Argument operator()(double value) const { return {{}, {trace::Real{value}}, false}; }
  live::Argument operator()(std::string& value) const { return {{}, {std::move(value)}, false}; }
};

Refusal refusal_of(RefusalCode code, std::string message) {
  Refusal refusal;
  refusal.code = code;
  refusal.message = std::move(message);
  return refusal;
}

recorder::Interceptor& interceptor_of(Interception choice) {
  return recorder::interceptor(choice == Interception::kFakeKey
                                   ? recorder::InterceptorKind::kFakeKey
                                   : recorder::InterceptorKind::kDispatchMode);
}

std::uint64_t audit_seed(const Options& options) {
  return options.audit_seed != 0 ? options.audit_seed : std::random_device{}();
}

}  // namespace

PlanStats Variant::stats() const {
  PlanStats stats = executor->stats();
  stats.plan_us = plan_us;
  stats.replays = replays;
  return stats;
}

StepLife::StepLife(SessionState& session, std::string name, std::string place)
    : session_(&session), name_(std::move(name)), place_(std::move(place)) {}

std::optional<std::vector<at::Tensor>> StepLife::call(std::vector<pack::Leaf> leaves,
                                                      const Eager& eager) {
  if (session_ == nullptr) {
    throw Error(ErrorCode::kFailedPrecondition,
                "step \"" + name_ +
                    "\" was called after its session was destroyed; keep the session alive "
                    "as long as its steps");
  }
  if (InsideStep::now()) {
    ++stats_.steps;
    ++stats_.eager;
    count(refusal_of(RefusalCode::kNestedStep,
                     "step \"" + name_ + "\" was called inside another step"));
    eager();
    return std::nullopt;
  }
  session_->objects.check_alive();
  std::vector<const void*> objects = session_->objects.identities();
  objects.push_back(this);
  const ExclusiveUse use(objects, name_, session_->objects.text());
  const InsideStep inside;
  session_->started = true;
  std::vector<live::Argument> arguments;
  arguments.reserve(leaves.size());
  for (pack::Leaf& leaf : leaves) arguments.push_back(std::visit(ToArgument{}, leaf));
  return call_alone(arguments, eager);
}

std::optional<std::vector<at::Tensor>> StepLife::call_alone(
    const std::vector<live::Argument>& arguments, const Eager& eager) {
  if (session_->options.on_refusal == OnRefusal::kThrow && !probing_.refusals().empty()) {
    throw Error(ErrorCode::kUnsupported,
                "step \"" + name_ + "\" cannot be replayed: " + probing_.refusals().front().text());
  }
  if (Variant* variant = find_variant(arguments)) return run(*variant, arguments, eager);
  if (probing_.wants_recording()) {
    record(arguments, eager);
  } else {
    eager();
    ++stats_.steps;
    ++stats_.eager;
    for (const Refusal& refusal : probing_.refusals()) count(refusal);
  }
  return std::nullopt;
}

Variant* StepLife::find_variant(const std::vector<live::Argument>& arguments) {
  Verdict newest;
  for (const auto& variant : variants_) {
    Verdict verdict = variant->guards->check(arguments, memory_);
    if (verdict) return variant.get();
    newest = std::move(verdict);
  }
  stats_.last_verdict = std::move(newest);
  return nullptr;
}

std::optional<std::vector<at::Tensor>> StepLife::run(Variant& variant,
                                                     const std::vector<live::Argument>& arguments,
                                                     const Eager& eager) {
  if (!variant.trusted) {
    run_trial(variant, eager);
    return std::nullopt;
  }
  if (variant.audits.draw()) {
    run_audit(variant, eager);
    return std::nullopt;
  }
  try {
    std::vector<at::Tensor> results = replay(variant, arguments);
    ++stats_.steps;
    ++stats_.replayed;
    return results;
  } catch (const replayer::cpu::Torn&) {
    throw;
  } catch (const std::exception& error) {
    // everything is as before the call: the eager step throws what the user should see, or shows
    // that only the plan could not
    const std::string what = error.what();
    eager();
    ++stats_.steps;
    ++stats_.eager;
    drop(variant, refusal_of(RefusalCode::kReplayThrew, "a trusted plan threw: " + what));
  }
  return std::nullopt;
}

std::vector<at::Tensor> StepLife::replay(Variant& variant,
                                         const std::vector<live::Argument>& arguments) {
  replayer::cpu::Outcome outcome = variant.executor->run(memory_);
  ++variant.replays;
  return variant.aftermath->settle(std::move(outcome), arguments);
}

void StepLife::run_trial(Variant& variant, const Eager& eager) {
  Verified verified = verify(variant, memory_, eager);
  ++stats_.steps;
  ++stats_.trials;
  if (verified.skipped) {
    drop(variant,
         refusal_of(RefusalCode::kTrialSkipped, "no memory for a copy of what the plan writes"));
  } else if (!verified.failure.empty()) {
    drop(variant, refusal_of(RefusalCode::kTrialDiverged, "the plan threw: " + verified.failure));
  } else if (verified.divergence) {
    drop(variant, refusal_of(RefusalCode::kTrialDiverged,
                             verified.divergence->path + ": " + verified.divergence->text));
  } else {
    variant.trusted = true;
    variant.recording->standing = trace::Standing::kTrusted;
    probing_.succeed();
    session_->write_trace();
  }
}

void StepLife::run_audit(Variant& variant, const Eager& eager) {
  Verified verified = verify(variant, memory_, eager);
  ++stats_.steps;
  ++(verified.skipped ? stats_.eager : stats_.audits);
  if (verified.failure.empty() && !verified.divergence) return;
  const std::string found = verified.divergence
                                ? verified.divergence->path + ": " + verified.divergence->text
                                : "the plan threw: " + verified.failure;
  const Refusal refusal =
      refusal_of(RefusalCode::kAuditDiverged,
                 found + "; " + std::to_string(variant.replays) + " replays before it");
  drop(variant, refusal);
  if (session_->options.on_divergence == OnDivergence::kThrow) {
    throw Error(ErrorCode::kInternal, "step \"" + name_ + "\": " + refusal.text());
  }
}

void StepLife::record(const std::vector<live::Argument>& arguments, const Eager& eager) {
  recorder::Interceptor* interceptor = nullptr;
  try {
    interceptor = &interceptor_of(session_->options.interception);
  } catch (const Error& error) {
    eager();
    ++stats_.steps;
    ++stats_.eager;
    refuse({refusal_of(RefusalCode::kNoInterceptor, error.what())});
    return;
  }
  recorder::Recorded recorded = recorder::record(eager, arguments, session_->objects, *interceptor);
  ++stats_.steps;
  ++stats_.recorded;
  recorded.results.clear();
  if (recorded.created_state && !warm_up_) {
    warm_up_ = recorded.recording;
    warm_up_->standing = trace::Standing::kWarmUp;
  }
  replayer::refuse_optimizers(recorded.recording, recorded.recording.refusals);
  for (const Refusal& refusal : recorded.recording.refusals) count(refusal);
  if (auto agreed = probing_.take(std::move(recorded))) {
    make_plan(*std::move(agreed));
  } else if (!probing_.refusals().empty()) {
    for (const Refusal& refusal : probing_.refusals()) count(refusal);
  }
}

void StepLife::make_plan(recorder::Recorded recorded) {
  std::vector<Refusal> refusals = replayer::refusals_of(recorded.recording);
  if (refusals.empty() && variants_.size() >= session_->options.max_variants) {
    refusals.push_back(
        refusal_of(RefusalCode::kTooManyVariants, "there are " + std::to_string(variants_.size()) +
                                                      " variants; the newest failed at " +
                                                      stats_.last_verdict.text()));
  }
  if (!refusals.empty()) {
    refuse(std::move(refusals));
    return;
  }
  try {
    auto variant = planned(std::move(recorded));
    const std::string path =
        Aftermath::unreachable_result(*variant->recording, *variant->executor, *variant->guards);
    if (!path.empty()) {
      refuse({refusal_of(RefusalCode::kUnreplayableOp, path + " is a tensor that nobody tracked")});
      return;
    }
    variants_.push_back(std::move(variant));
  } catch (const std::exception& error) {
    refuse({refusal_of(RefusalCode::kUnreplayableOp,
                       std::string("no plan could be made: ") + error.what())});
  }
}

std::unique_ptr<Variant> StepLife::planned(recorder::Recorded recorded) {
  const auto start = std::chrono::steady_clock::now();
  const Options& options = session_->options;
  auto recording = std::make_shared<trace::Recording>(std::move(recorded.recording));
  const auto generator = [this](const std::string& path) {
    for (auto& [name, found] : session_->objects.generators()) {
      if (name == path) return found;
    }
    throw Error(ErrorCode::kInternal, "no generator " + path);
  };
  auto executor =
      std::make_unique<replayer::cpu::Executor>(replayer::plan(recording, {}), generator);
  std::vector<guards::OutsideTensor> outside;
  for (recorder::Outside& tensor : recorded.outside)
    outside.push_back({tensor.path, tensor.storage});
  auto guards = std::make_unique<guards::GuardSet>(
      *recording, executor->bound(), executor->written_buffers(), session_->objects,
      session_->objects.snapshot(), std::move(outside));
  auto aftermath =
      std::make_unique<Aftermath>(*recording, *executor, *guards, std::move(recorded.identities));
  auto variant = std::make_unique<Variant>(
      Variant{std::move(recording), std::move(executor), std::move(guards), std::move(aftermath),
              AuditSchedule(options.verify.rate, audit_seed(options) + variants_made_++),
              !options.verify.first, 0, 0});
  if (variant->trusted) variant->recording->standing = trace::Standing::kTrusted;
  variant->plan_us =
      std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count();
  return variant;
}

void StepLife::drop(const Variant& variant, Refusal refusal) {
  std::erase_if(variants_, [&](const auto& other) { return other.get() == &variant; });
  refuse({std::move(refusal)});
}

void StepLife::refuse(std::vector<Refusal> refusals) {
  for (const Refusal& refusal : refusals) count(refusal);
  probing_.pause(std::move(refusals));
}

void StepLife::count(const Refusal& refusal) {
  for (CountedRefusal& counted : stats_.refusals) {
    if (counted.refusal.code != refusal.code || counted.refusal.op != refusal.op) continue;
    counted.refusal = refusal;
    ++counted.times;
    return;
  }
  stats_.refusals.push_back({refusal, 1});
}

void StepLife::invalidate() {
  variants_.clear();
  probing_.restart();
}

Stats StepLife::stats() const {
  Stats stats = stats_;
  for (const auto& variant : variants_) stats.variants.push_back(variant->stats());
  if (session_ != nullptr) stats.trace_problem = session_->trace_problem;
  return stats;
}

std::string StepLife::explain() const { return session::explain(name_, place_, stats()); }

trace::Step StepLife::to_trace() const {
  trace::Step step{name_, place_, {}};
  if (warm_up_) step.recordings.push_back(*warm_up_);
  for (const auto& variant : variants_) step.recordings.push_back(*variant->recording);
  return step;
}

}  // namespace steptape::session
