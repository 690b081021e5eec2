#include "session/call.h"

#include <c10/core/AutogradState.h>
#include <c10/util/ScopeExit.h>

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <utility>

#include "recorder/recorder.h"
#include "replayer/planner/numbers/contradiction.h"
#include "replayer/runtime/backends.h"
#include "session/arguments.h"
#include "session/session_state.h"
#include "steptape/error.h"
#include "steptape/options.h"
#include "trace/refusals.h"

namespace steptape::session {

using trace::make_refusal;

namespace {

/// What intercepts ops in a verification by this choice, or null where it would change what the
/// eager step computes: the dispatch mode perturbs some eager steps, so that a verification under
/// it would compare with another step, and an interceptor that another library has is none.
recorder::Interceptor* listener_of(Interception choice) {
  if (choice != Interception::kFakeKey) return nullptr;
  try {
    return &recorder::interceptor(choice);
  } catch (const Error&) {
    return nullptr;
  }
}

/// The recording with all that the step found, where that was looked at.
trace::Recording with_bytes(const recorder::Recorded& recorded) {
  trace::Recording recording = recorded.recording;
  for (std::size_t i = 0; i < recorded.found.size(); ++i) {
    if (recorded.found[i]) recording.buffers[i].content = recorded.found[i];
  }
  for (std::size_t i = 0; i < recorded.generators_found.size(); ++i) {
    recording.generators[i].content = recorded.generators_found[i];
  }
  return recording;
}

/// While it lives, backward of tensors on a device runs in the thread that asks for it, as that of
/// the CPU's does, in place of a thread of autograd's own: what hooks and functions of the program
/// do there is watched as all else is. The order of the nodes is the same.
class BackwardInThisThread {
 public:
  explicit BackwardInThisThread(bool is_wanted) {
    if (is_wanted) state().set_multithreading_enabled(false);
  }
  ~BackwardInThisThread() { state().set_multithreading_enabled(was_); }
  BackwardInThisThread(const BackwardInThisThread&) = delete;
  BackwardInThisThread& operator=(const BackwardInThisThread&) = delete;

 private:
  static c10::AutogradState& state() { return c10::AutogradState::get_tls_state(); }
  bool was_ = state().get_multithreading_enabled();
};

}  // namespace

std::optional<pack::Results> Call::run() {
  mismatches_.begin(step_.journal.begin_call());
  if (step_.session.is_being_captured(given_.arguments)) {
    run_eagerly();
    step_.journal.refused(make_refusal(RefusalCode::kDevice,
                                       "the program captures the current stream: nothing may wait "
                                       "for the device now"));
    return std::nullopt;
  }
  is_asked_for_ = !step_.schedule.is_empty() && step_.session.trace.keeps_recordings() &&
                  step_.schedule.wants(call_of_run());
  settle_gradients();
  if (is_asked_for_) {
    record();
    return std::nullopt;
  }
  Plans& plans = step_.plans;
  Variants::Tried tried;
  std::vector<Unsure> unsure;  // some of `tried`
  // the step's own function may call the step: it drops what it will, and this one lives on
  while (const std::shared_ptr<Variant> variant =
             plans.variants().find(given_.arguments, given_.declared, tried, step_.journal.calls(),
                                   step_.entry, mismatches_)) {
    Attempt made = attempt(*variant);
    if (made.unproved) unsure.push_back({variant.get(), std::move(made.unproved)});
    if (made.is_done) {
      plans.variants().reset_penalties(tried);
      return std::move(made.results);
    }
    tried.push_back(variant);
  }
  if (!unsure.empty()) {
    prove(unsure);
    return std::nullopt;
  }
  step_.journal.fell_back(mismatches_.all());
  const std::vector<Refusal>& refusals = plans.refusals(given_.way());
  const bool may_throw = step_.session.options.on_refusal == OnRefusal::kThrow && !step_.is_update;
  if (may_throw && !refusals.empty()) {
    throw Error(ErrorCode::kUnsupported,
                "step \"" + step_.name + "\" cannot be replayed: " + refusals.front().text());
  }
  if (plans.wants_recording(given_.way())) {
    record();
    return std::nullopt;
  }
  run_eagerly();
  for (const Refusal& refusal : plans.refusals(given_.way())) step_.journal.refused_again(refusal);
  return std::nullopt;
}

void Call::end(const std::optional<pack::Results>& results,
               const std::function<void(const pack::Results&)>& on_replay) {
  try {
    if (results) on_replay(*results);
    if (Deferred* outer = Deferred::current()) {
      outer->take_over(std::move(deferred_));
    } else {
      deferred_.run(
          [this](torch::optim::Optimizer& optimizer) { step_.session.step_optimizer(optimizer); });
    }
  } catch (...) {
    judge_.keep_or_put_back();
    throw;
  }
  judge_.keep_or_put_back();
  judge_.throw_if_wrong();
}

/// Where a plan goes on from gradients that another one left in memory of its graphs, they must not
/// lie there any more (Options::static_gradients).
void Call::settle_gradients() const {
  if (!step_.session.options.static_gradients) return;
  const bool are_used = std::ranges::any_of(step_.plans.variants(), [](const auto& variant) {
    return variant->outputs->uses_gradients_at_entry();
  });
  if (!are_used) return;
  for (const auto& [device, pool] : *step_.session.device_pools) pool->settle_gradients();
}

/// Its guards hold.
Call::Attempt Call::attempt(Variant& variant) {
  variant.last_use = step_.journal.calls();
  const guards::Entry& entry = step_.entry;
  if (entry.has_new_remainders) adapt(variant);
  if (!variant.trusted) return compare(variant);
  const bool verifies = step_.session.options.verify.first;
  if (entry.has_unseen_number && verifies) {
    prove(std::array{Unsure{&variant, {}}});
    return {};
  }
  // those who move memory every few calls have an audit ever more rarely
  const bool is_due = entry.has_new_remainders ||
                      (!entry.moved.empty() && std::has_single_bit(variant.rebinds + 1));
  if ((is_due && verifies) || variant.audits.draw()) return compare(variant);
  return attempt_replay(variant);
}

Call::Attempt Call::attempt_replay(Variant& variant) {
  try {
    Attempt made{.results = replay(variant)};
    judge_.replayed(variant);
    step_.note_results(*made.results);
    return made;
  } catch (const replayer::StateCorrupted&) {
    throw;
  } catch (const replayer::Unproved& unproved) {
    // what is read after the number may tell that it is another plan's turn
    return {.is_done = false, .unproved = unproved};
  } catch (const replayer::Uncompared&) {
    return compare(variant);
  } catch (const replayer::AssumptionViolated& changed) {
    // everything is as before the call: another plan may fit
    judge_.undone(variant, changed);
    return {.is_done = false};
  } catch (const std::exception& error) {
    // everything is as before the call: the eager step throws what the user should see, or catches
    // what an op throws, or shows that only the plan could not
    const replayer::AssumptionViolated undone = replayer::undone_for(error);
    run_eagerly();
    judge_.undone(variant, undone);
  }
  return {};
}

/// Runs the plan and the eager step: a trial, or an audit of a plan that is trusted.
Call::Attempt Call::compare(Variant& variant) {
  const bool is_trial = !variant.trusted;
  Verified verified = verify(variant);
  if (!verified.is_nothing) {
    is_trial ? judge_.tried(variant, verified) : judge_.audited(variant, verified);
    return {};
  }
  if (!is_trial && verified.unproved)
    return {.is_done = false, .unproved = std::move(verified.unproved)};
  judge_.undone(variant, *verified.changed);
  return {.is_done = false};
}

/// Inputs lie where the plan was not compared with the eager step.
void Call::adapt(Variant& variant) {
  variant.executor->adapt_to(step_.entry.memory);
  // where nothing is compared, that is all
  if (!step_.session.options.verify.first) variant.guards->settle_remainders();
}

/// Runs the plan on what the guards found.
replayer::Outcome Call::execute(Variant& variant) {
  const bool verifies = step_.session.options.verify.first;
  const auto run = [&] {
    return variant.executor->run(
        {.memory = step_.entry.memory,
         .numbers = {.leaves = step_.entry.leaves,
                     .proofs = verifies ? &variant.number_proofs : nullptr},
         .decided = [&variant] { variant.outputs->drop_gradients(); },
         .exchanges = variant.guards->has_groups() ? exchanges().get() : nullptr});
  };
  const auto& without_lock = step_.session.without_lock;
  if (!without_lock) return run();
  // a short one is over before anyone who waits would be woken
  constexpr std::chrono::milliseconds kLong{1};
  const auto start = std::chrono::steady_clock::now();
  replayer::Outcome outcome;
  if (variant.last_run > kLong) {
    // others may take tensors out of the program's objects while they run
    const std::vector<c10::Storage> held = variant.outputs->kept_memory();
    without_lock([&] { outcome = run(); });
  } else {
    outcome = run();
  }
  variant.last_run = std::chrono::steady_clock::now() - start;
  return outcome;
}

pack::Results Call::replay(Variant& variant) {
  const std::vector<at::Tensor> gradients = variant.outputs->gradients_at_entry();
  replayer::Outcome outcome = execute(variant);
  ++variant.replays;
  pack::Results results;
  for (std::size_t i = 0; i < outcome.numbers.size(); ++i) {
    const trace::Number& number = variant.recording->numbers[i];
    const bool is_constant = number.op == trace::kNone && number.formula == trace::kNone;
    results.numbers.push_back(is_constant ? returned_of(number.value)
                                          : number_of(outcome.numbers[i], number.value));
  }
  results.tensors = variant.outputs->commit(std::move(outcome), given_.arguments, gradients);
  const auto observed = static_cast<std::ptrdiff_t>(variant.recording->observed);
  deferred_ = variant.deferred;
  results.note = deferred_.note;
  deferred_.tensors.assign(results.tensors.end() - observed, results.tensors.end());
  results.tensors.erase(results.tensors.end() - observed, results.tensors.end());
  return results;
}

Verified Call::verify(Variant& variant) {
  tried_ = variant.deferred.note;
  const auto none_is_tried = c10::make_scope_exit([this] { tried_.reset(); });
  const Options& options = step_.session.options;
  Verified verified = session::verify(
      variant,
      {given_.arguments, step_.session.objects, step_.entry, options.verify.first, exchanges()},
      [this] { return run_function(InsideStep::Depth::kWatched); },
      listener_of(options.interception));
  if (verified.is_nothing) return verified;
  if (verified.proof) {
    step_.session.declarations.describe(given_.declared, *verified.proof);
    verified.mismatch = replayer::contradiction(*variant.recording, *verified.proof);
    // results judge other ops and tensors, such as one that is two arguments; they prove no number
    const bool is_of_tensors =
        verified.mismatch && (verified.mismatch->kind == trace::DifferenceKind::kOpStream ||
                              verified.mismatch->kind == trace::DifferenceKind::kRole);
    if (is_of_tensors) verified.mismatch.reset();
    verified.proves_numbers = !is_of_tensors && !verified.mismatch;
  }
  // what a front end noted is of the call that was recorded: it looks at no other
  auto note = std::move(variant.deferred.note);
  variant.deferred = deferred_.without_tensors();
  variant.deferred.note = std::move(note);
  if (!verified.is_wrong() && paths_of_updates() != variant.recording->updates) {
    verified.divergence = Divergence{"updates", "the eager step steps other optimizers after it"};
  }
  if (!verified.changed) variant.last_held = step_.journal.call();
  return verified;
}

/// The eager step, recorded, where a number has a value at which the plans were not proved.
void Call::prove(std::span<const Unsure> unsure) {
  std::optional<recorder::Recorded> recorded = run_recorded();
  if (!recorded) return;
  Plans::bind_numbers(*recorded);
  const trace::Recording& proof = recorded->recording;
  const bool is_clean = !recorded->is_warm_up() && proof.refusals.empty();
  std::vector<std::optional<trace::Difference>> parted;
  for (const auto& [variant, unproved] : unsure) {
    parted.push_back(replayer::contradiction(*variant->recording, proof));
    if (is_clean && !parted.back() && proof.advances == variant->recording->advances)
      return judge_.proved(*variant, proof);
  }
  std::optional<Refusal> refusal;
  for (std::size_t i = 0; i < unsure.size(); ++i) {
    const auto& [variant, unproved] = unsure[i];
    auto found = judge_.disproved(*variant, proof, parted[i], unproved ? &*unproved : nullptr);
    if (!refusal) refusal = std::move(found);
  }
  const bool is_planned = step_.plans.learn_from(*std::move(recorded), given_.way(), deferred_);
  if (refusal && !is_planned) step_.journal.refused(*refusal);
}

void Call::record() {
  std::optional<recorder::Recorded> recorded = run_recorded();
  if (!recorded) return;
  if (is_asked_for_) {
    step_.session.trace.keep({step_.name, step_.place, {}}, with_bytes(*recorded));
    // with a plan there is nothing to be learnt from it
    const bool has_plan = step_.plans.variants().size() != 0;
    if (has_plan || !step_.plans.wants_recording(given_.way())) return;
  }
  Plans::bind_numbers(*recorded);
  step_.plans.learn_from(*std::move(recorded), given_.way(), deferred_);
}

/// None where the step could not be recorded, or nothing of it is to be kept: it has run.
std::optional<recorder::Recorded> Call::run_recorded() {
  recorder::Interceptor* interceptor = nullptr;
  try {
    interceptor = &recorder::interceptor(step_.session.options.interception);
  } catch (const Error& error) {
    const std::string what = error.what();
    run_eagerly();
    step_.plans.refuse(make_refusal(RefusalCode::kNoInterceptor, what));
    return std::nullopt;
  }
  InsideStep::take_foreign_values();
  const std::uint64_t call = call_of_run();
  recorder::Recorded recorded =
      recorder::record([this] { return run_function(InsideStep::Depth::kWatched); },
                       given_.arguments, step_.session.objects, *interceptor, detail());
  recorded.recording.call = call;
  step_.journal.recorded(recorded.recording, recorded.is_warm_up());
  recorded.results.clear();
  if (recorded.hints.is_discarded()) return std::nullopt;
  step_.session.declarations.describe(given_.declared, recorded.recording);
  recorded.recording.updates = paths_of_updates();
  if (InsideStep::take_foreign_values()) {
    recorded.recording.refusals.push_back(make_refusal(
        RefusalCode::kNestedStep,
        "a step of another session, which declares host values, was called inside this one"));
  }
  return recorded;
}

void Call::run_eagerly() {
  const auto run = [this] { return run_function(InsideStep::Depth::kEager); };
  if (exchanges_ != nullptr && exchanges_->has_any()) {
    // a plan that was undone has issued some
    recorder::run_served(run, recorder::interceptor(step_.session.options.interception),
                         exchanges_);
  } else {
    run();
  }
  step_.journal.ran_eagerly();
}

const std::shared_ptr<live::Exchanges>& Call::exchanges() {
  if (exchanges_ == nullptr)
    exchanges_ = std::make_shared<live::Exchanges>(step_.session.without_lock);
  return exchanges_;
}

/// The one place where the user's function runs.
recorder::Returned Call::run_function(InsideStep::Depth depth) {
  given_.way();  // the function may change its arguments
  if (exchanges_ != nullptr) exchanges_->begin_run();
  const InsideStep inside(depth);
  const BackwardInThisThread here(depth == InsideStep::Depth::kWatched);
  recorder::Returned returned;
  deferred_ = {};
  const auto scope = Deferred::make_current(deferred_);
  pack::Results results = eager_();
  step_.note_results(results);
  returned.results = std::move(results.tensors);
  deferred_.note = std::move(results.note);
  for (const pack::Number& number : results.numbers) returned.numbers.push_back(value_of(number));
  const std::vector<at::Tensor>& observed = deferred_.tensors;
  returned.observed = observed.size();
  returned.results.insert(returned.results.end(), observed.begin(), observed.end());
  return returned;
}

/// Of the optimizers that the call steps when it is over.
std::vector<std::string> Call::paths_of_updates() const {
  std::vector<std::string> paths;
  for (const auto* optimizer : deferred_.updates)
    paths.push_back(step_.session.path_of(*optimizer));
  return paths;
}

/// How closely the recording that begins looks.
recorder::Detail Call::detail() {
  using recorder::Depth;
  const Options& options = step_.session.options;
  recorder::Detail detail{options.digests ? Depth::kDigests : Depth::kPlain, options.timings,
                          exchanges()};
  if (is_asked_for_ && options.record.state) detail.depth = Depth::kBytes;
  return detail;
}

/// Its number over the whole run.
std::uint64_t Call::call_of_run() const {
  CallLedger* const ledger = step_.session.trace.ledger();
  const auto done = ledger != nullptr ? ledger->calls_of(step_.name) : std::nullopt;
  return done ? *done + 1 : step_.journal.call();
}

}  // namespace steptape::session
