#include "session/step_life.h"

#include <c10/core/AutogradState.h>
#include <c10/util/ScopeExit.h>

#include <algorithm>
#include <bit>
#include <chrono>

#include "replayer/planner/analysis/refusals.h"
#include "replayer/planner/numbers/contradiction.h"
#include "replayer/planner/optimizers/optimizers.h"
#include "replayer/runtime/backends.h"
#include "session/arguments.h"
#include "session/exclusive_use.h"
#include "session/followed_numbers.h"
#include "session/interception.h"
#include "session/observe/call_digests.h"
#include "session/observe/call_line.h"
#include "session/session_state.h"
#include "session/verify/checkpoint.h"
#include "session/way_of_entry.h"
#include "steptape/error.h"
#include "trace/compare/guard_differences.h"
#include "trace/refusals.h"

namespace steptape::session {

using trace::make_refusal;

namespace {

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

/// Of a plan that does something else than the eager step, though nothing says when.
Refusal misfit_refusal(const trace::Recording& plan, const trace::Difference& parted) {
  const std::string message = "a number enters the step in a way that no formula covers; " +
                              parted.path + ": plan " + parted.expected + ", eager " + parted.found;
  return parted.op < plan.ops.size()
             ? trace::refusal_at(plan, parted.op, RefusalCode::kScalarVaries, message)
             : make_refusal(RefusalCode::kScalarVaries, message);
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

StepLife::StepLife(SessionState& session, std::string name, std::string place, bool is_update)
    : session_(&session),
      name_(std::move(name)),
      place_(std::move(place)),
      schedule_(session.options.record),
      probing_(session.options.host_reads == HostReads::kObserve ? replayer::Reads::kForLooking
                                                                 : replayer::Reads::kMayDecide),
      variants_(session.options.max_variants),
      is_update_(is_update),
      journal_(session, name_, place_) {}

std::optional<pack::Results> StepLife::call(
    std::vector<pack::Leaf> leaves, const Eager& eager,
    const std::function<void(const pack::Results&)>& on_replay) {
  if (session_ == nullptr) {
    throw Error(ErrorCode::kFailedPrecondition,
                "step \"" + name_ +
                    "\" was called after its session was destroyed; keep the session alive "
                    "as long as its steps");
  }
  if (InsideStep::now() == InsideStep::Depth::kWatched) {
    session_->start();
    const CallLine line(*session_, journal_, name_, leaves);
    journal_.begin_call();
    journal_.ran_eagerly();
    journal_.refused(make_refusal(RefusalCode::kNestedStep,
                                  "step \"" + name_ + "\" was called inside another step"));
    if (!session_->declared_now && !session_->host_values.empty()) {
      InsideStep::note_foreign_values();
      session_->declared();
    }
    note_results(eager());
    return std::nullopt;
  }
  check_alive();
  std::vector<const void*> objects = session_->objects.identities();
  objects.push_back(this);
  const ExclusiveUse use(objects, name_, session_->objects.text());
  session_->start();
  const SessionState::Call call(*session_);
  check_alive();  // the program's own functions have run
  verified_ = nullptr;
  to_put_back_ = nullptr;
  to_throw_.reset();
  // said in a step that threw, in a look after one, or in a call of another step
  if (std::exchange(must_restart_, false)) restart();
  const std::shared_ptr<StepLife> alive = shared_from_this();
  const CallLine line(*session_, journal_, name_, leaves);
  std::optional<pack::Results> results =
      call_alone(arguments_of(std::move(leaves)), *session_->declared_now, eager);
  if (std::exchange(must_restart_, false)) restart();
  try {
    if (results) on_replay(*results);
    run_deferred();
  } catch (...) {
    keep_or_put_back();
    throw;
  }
  keep_or_put_back();
  if (to_throw_) throw *std::exchange(to_throw_, std::nullopt);
  return results;
}

void StepLife::run_deferred() {
  Deferred deferred = std::exchange(deferred_, {});
  if (Deferred* outer = Deferred::current()) {
    outer->take_over(std::move(deferred));
    return;
  }
  SessionState& session = *session_;
  deferred.run(
      [&session](torch::optim::Optimizer& optimizer) { session.step_optimizer(optimizer); });
}

std::vector<std::string> StepLife::paths_of(const Deferred& deferred) const {
  std::vector<std::string> paths;
  for (const auto* optimizer : deferred.updates) paths.push_back(session_->path_of(*optimizer));
  return paths;
}

void StepLife::note_results(const pack::Results& results) {
  if (trace::LedgerLine* line = journal_.line()) line->results = digest_of(results);
  schedule_.note(results);
}

recorder::Look StepLife::look() const {
  using recorder::Depth;
  const Options& options = session_->options;
  recorder::Look look{options.digests ? Depth::kDigests : Depth::kPlain, options.timings};
  if (is_asked_for_ && options.record.state) look.depth = Depth::kBytes;
  return look;
}

std::uint64_t StepLife::call_of_run() const {
  const auto done = session_->ledger ? session_->ledger->calls_of(name_) : std::nullopt;
  return done ? *done + 1 : journal_.call();
}

recorder::Returned StepLife::run_function(const Eager& eager, InsideStep::Depth depth) {
  const InsideStep inside(depth);
  const BackwardInThisThread here(depth == InsideStep::Depth::kWatched);
  recorder::Returned returned;
  deferred_ = {};
  const Deferred::Scope scope(deferred_);
  pack::Results results = eager();
  note_results(results);
  returned.results = std::move(results.tensors);
  deferred_.note = std::move(results.note);
  for (const pack::Number& number : results.numbers) returned.numbers.push_back(value_of(number));
  const std::vector<at::Tensor>& observed = deferred_.tensors;
  returned.observed = observed.size();
  returned.results.insert(returned.results.end(), observed.begin(), observed.end());
  return returned;
}

std::optional<pack::Results> StepLife::call_alone(const std::vector<live::Argument>& arguments,
                                                  const guards::Declared& declared,
                                                  const Eager& eager) {
  misfits_.begin(journal_.begin_call());
  if (session_->is_being_captured(arguments)) {
    run_eagerly(eager);
    journal_.refused(make_refusal(RefusalCode::kDevice,
                                  "the program captures the current stream: nothing may wait for "
                                  "the device now"));
    return std::nullopt;
  }
  is_asked_for_ =
      !schedule_.is_empty() && session_->keeps_recordings() && schedule_.wants(call_of_run());
  const Given given{arguments, declared};
  settle_gradients();
  if (is_asked_for_) {
    way_ = way_of_entry(arguments);
    record(given, eager);
    return std::nullopt;
  }
  Variants::Tried tried;
  // the step's own function may call the step: it drops what it will, and this one lives on
  while (const std::shared_ptr<Variant> variant =
             variants_.find(arguments, declared, tried, journal_.calls(), entry_, misfits_)) {
    Run outcome = run(*variant, given, eager);
    if (outcome.is_done) {
      variants_.forgive(tried);
      return std::move(outcome.results);
    }
    tried.push_back(variant);
  }
  journal_.fell_back(misfits_.all());
  way_ = way_of_entry(arguments);
  const bool may_throw = session_->options.on_refusal == OnRefusal::kThrow && !is_update_;
  if (may_throw && !probing_.refusals(way_).empty()) {
    throw Error(ErrorCode::kUnsupported, "step \"" + name_ + "\" cannot be replayed: " +
                                             probing_.refusals(way_).front().text());
  }
  record_or_run(given, eager);
  return std::nullopt;
}

/// Where a plan goes on from gradients that another one left in memory of its graphs, they must not
/// lie there any more (Options::static_gradients).
void StepLife::settle_gradients() const {
  if (!session_->options.static_gradients) return;
  const bool are_used = std::ranges::any_of(
      variants_, [](const auto& variant) { return variant->aftermath->uses_gradients_at_entry(); });
  if (!are_used) return;
  for (const auto& [device, pool] : *session_->device_pools) pool->settle_gradients();
}

/// Plans over an object that is gone are of no more use: their memory goes too.
void StepLife::check_alive() {
  try {
    session_->objects.check_alive();
  } catch (const Error&) {
    variants_.clear();
    throw;
  }
}

StepLife::Run StepLife::run(Variant& variant, const Given& given, const Eager& eager) {
  variant.last_use = journal_.calls();
  if (entry_.has_new_remainders && !adapt(variant)) return {false, std::nullopt};
  if (!variant.trusted) return {run_trial(variant, given, eager), std::nullopt};
  if (entry_.has_unseen_number && session_->options.verify.first) {
    prove(variant, given, eager);
    return {true, std::nullopt};
  }
  // those who move memory every few calls have an audit ever more rarely
  const bool is_due = entry_.has_new_remainders ||
                      (!entry_.moved.empty() && std::has_single_bit(variant.rebinds + 1));
  const bool must_audit = is_due && session_->options.verify.first;
  if (must_audit || variant.audits.draw()) {
    return {run_audit(variant, given, eager), std::nullopt};
  }
  try {
    Run outcome{true, replay(variant, given.arguments)};
    note_moves(variant);
    variant.last_held = journal_.call();
    journal_.replayed(variant);
    variants_.note_replay();
    note_results(*outcome.results);
    return outcome;
  } catch (const replayer::Torn&) {
    throw;
  } catch (const replayer::Unproved& unproved) {
    prove(variant, given, eager, &unproved);
  } catch (const replayer::Uncompared&) {
    return {run_audit(variant, given, eager), std::nullopt};
  } catch (const replayer::Changed& changed) {
    // everything is as before the call: another plan may fit
    note_change(variant, changed);
    return {false, std::nullopt};
  } catch (const std::exception& error) {
    // everything is as before the call: the eager step throws what the user should see, or shows
    // that only the plan could not
    const std::string what = error.what();
    way_ = way_of_entry(given.arguments);
    run_eagerly(eager);
    drop(variant, make_refusal(RefusalCode::kReplayThrew, "a trusted plan threw: " + what));
  }
  return {true, std::nullopt};
}

/// Inputs lie where the plan was not compared with the eager step. False where it cannot be.
bool StepLife::adapt(Variant& variant) {
  if (!variant.executor->adapt_to(entry_.memory)) {
    variant.guards->pin_remainders();
    misfits_.add(variant,
                 {"inputs (data_ptr modulo 64)", "as recorded", "others", GuardKind::kAlignment});
    journal_.did_not_fit(misfits_.all());
    return false;
  }
  // where nothing is compared, that is all
  if (!session_->options.verify.first) variant.guards->settle_remainders();
  return true;
}

/// The plan has run on the addresses that the guards found, which may be others than before.
void StepLife::note_moves(Variant& variant) {
  if (entry_.moved.empty()) return;
  variant.guards->forget_moves();
  ++variant.rebinds;
  journal_.rebound(variant, entry_.moved);
}

replayer::Outcome StepLife::execute(Variant& variant) {
  const bool verifies = session_->options.verify.first;
  const auto run = [&] {
    const replayer::NumberProofs::Scope proofs(verifies ? &variant.number_proofs : nullptr);
    return variant.executor->run(entry_.memory, entry_.leaves,
                                 [&variant] { variant.aftermath->drop_gradients(); });
  };
  if (!session_->without_lock) return run();
  // a short one is over before anyone who waits would be woken
  constexpr std::chrono::milliseconds kLong{1};
  const auto start = std::chrono::steady_clock::now();
  replayer::Outcome outcome;
  if (variant.last_run > kLong) {
    // others may take tensors out of the program's objects while they run
    const std::vector<c10::Storage> held = variant.aftermath->kept_memory();
    session_->without_lock([&] { outcome = run(); });
  } else {
    outcome = run();
  }
  variant.last_run = std::chrono::steady_clock::now() - start;
  return outcome;
}

pack::Results StepLife::replay(Variant& variant, const std::vector<live::Argument>& arguments) {
  const std::vector<at::Tensor> gradients = variant.aftermath->gradients_at_entry();
  replayer::Outcome outcome = execute(variant);
  ++variant.replays;
  pack::Results results;
  for (std::size_t i = 0; i < outcome.numbers.size(); ++i) {
    const trace::Number& number = variant.recording->numbers[i];
    const bool is_constant = number.op == trace::kNone && number.formula == trace::kNone;
    results.numbers.push_back(is_constant ? returned_of(number.value)
                                          : number_of(outcome.numbers[i], number.value));
  }
  results.tensors = variant.aftermath->settle(std::move(outcome), arguments, gradients);
  const auto observed = static_cast<std::ptrdiff_t>(variant.recording->observed);
  deferred_ = variant.deferred;
  results.note = deferred_.note;
  deferred_.tensors.assign(results.tensors.end() - observed, results.tensors.end());
  results.tensors.erase(results.tensors.end() - observed, results.tensors.end());
  return results;
}

// The run was undone: the program took another way.
void StepLife::note_change(Variant& variant, const replayer::Changed& changed) {
  misfits_.add(variant, changed.verdict);
  journal_.did_not_fit(misfits_.all());
  if (!variants_.note_change(variant)) return;
  drop(variant, make_refusal(changed.code, std::string(changed.what()) + "; " +
                                               std::to_string(variant.changes) +
                                               " runs were undone for it"));
}

void StepLife::run_eagerly(const Eager& eager) {
  run_function(eager, InsideStep::Depth::kEager);
  journal_.ran_eagerly();
}

void StepLife::record_or_run(const Given& given, const Eager& eager) {
  if (probing_.wants_recording(way_)) {
    record(given, eager);
    return;
  }
  run_eagerly(eager);
  for (const Refusal& refusal : probing_.refusals(way_)) journal_.refused_again(refusal);
}

Verified StepLife::verify(Variant& variant, const Given& given, const Eager& eager) {
  way_ = way_of_entry(given.arguments);
  tried_ = variant.deferred.note;
  const auto none_is_tried = c10::make_scope_exit([this] { tried_.reset(); });
  Verified verified = session::verify(
      variant, {given.arguments, session_->objects, entry_, session_->options.verify.first},
      [&] { return run_function(eager, InsideStep::Depth::kWatched); },
      listener_of(session_->options.interception));
  if (verified.is_nothing) return verified;
  if (verified.proof) {
    session_->describe(given.declared, *verified.proof);
    verified.misfit = replayer::contradiction(*variant.recording, *verified.proof);
    // results judge other ops and tensors, such as one that is two arguments; they prove no number
    const bool is_of_tensors =
        verified.misfit && (verified.misfit->kind == trace::DifferenceKind::kOpStream ||
                            verified.misfit->kind == trace::DifferenceKind::kRole);
    if (is_of_tensors) verified.misfit.reset();
    verified.proves_numbers = !is_of_tensors && !verified.misfit;
  }
  // what a front end noted is of the call that was recorded: it looks at no other
  auto note = std::move(variant.deferred.note);
  variant.deferred = deferred_.without_tensors();
  variant.deferred.note = std::move(note);
  if (!verified.is_wrong() && paths_of(deferred_) != variant.recording->updates) {
    verified.divergence = Divergence{"updates", "the eager step steps other optimizers after it"};
  }
  if (!verified.changed) variant.last_held = journal_.call();
  return verified;
}

/// Whether an op is to blame that may have left other bits by chance: the next trial tells.
bool StepLife::is_open(Variant& variant, const Verified& verified) {
  if (verified.skipped || verified.changed || !verified.is_wrong() || !verified.divergence)
    return false;
  const Divergence& divergence = *verified.divergence;
  return divergence.is_by_chance && variant.doubt(static_cast<trace::Index>(divergence.op_index));
}

/// The eager step, recorded, where a number has a value at which the plan was not proved.
void StepLife::prove(Variant& variant, const Given& given, const Eager& eager,
                     const replayer::Unproved* unproved) {
  way_ = way_of_entry(given.arguments);
  std::optional<recorder::Recorded> recorded = run_recorded(given, eager);
  if (!recorded) return;
  bind_numbers(*recorded);
  const trace::Recording& proof = recorded->recording;
  const bool is_clean = !recorded->created_state && proof.refusals.empty() &&
                        proof.advances == variant.recording->advances;
  const auto parted = replayer::contradiction(*variant.recording, proof);
  if (is_clean && !parted) {
    variant.guards->settle();
    variant.prove(replayer::numbers_at(proof));
    variant.last_held = journal_.call();
    return;
  }
  const trace::Difference refused{trace::DifferenceKind::kOpStream, trace::kNone, "the step",
                                  "as recorded", "refused"};
  const bool speaks_against = judge(variant, proof, parted.value_or(refused), unproved);
  const Refusal refusal = misfit_refusal(*variant.recording, parted.value_or(refused));
  const std::uint64_t made = variants_made_;
  learn_from(*std::move(recorded));
  if (speaks_against && variants_made_ == made) journal_.refused(refusal);
}

/// The eager step parts from the plan where the plan was not proved. False where the plan would
/// have found out.
bool StepLife::judge(Variant& variant, const trace::Recording& proof,
                     const trace::Difference& parted, const replayer::Unproved* unproved) {
  const bool is_other_way =
      unproved != nullptr && replayer::took_another_way(*variant.recording, proof, parted);
  if (is_other_way) {
    note_change(variant, *unproved);
    return false;
  }
  const bool has_same_ops = parted.kind != trace::DifferenceKind::kOpStream;
  const bool pins_reads =
      has_same_ops && variant.number_proofs.pin_others(replayer::numbers_at(proof));
  const bool pins_numbers = pin(variant, unproved);
  if (pins_numbers || pins_reads) return true;
  drop(variant, misfit_refusal(*variant.recording, parted));
  return false;
}

/// From here on the plan holds for those values of its numbers alone at which it was proved. False
/// where it was proved at all that they are.
bool StepLife::pin(Variant& variant, const replayer::Unproved* unproved) {
  const bool pins_numbers = variant.guards->pin();
  if (unproved == nullptr) return pins_numbers;
  variant.number_proofs.pin(unproved->number);
  return true;
}

/// The same, where a trial found numbers at which the plan does something else.
void StepLife::pin_others(Variant& variant, Verified& verified) {
  const bool is_other = verified.misfit || verified.is_wrong();
  if (!is_other || !verified.proof || verified.changed) return;
  const bool pins_reads = variant.number_proofs.pin_others(replayer::numbers_at(*verified.proof));
  verified.is_pinned = pin(variant, nullptr) || pins_reads;
}

void StepLife::note_proved(Variant& variant, const Verified& verified) {
  if (!verified.proves_numbers) return;
  variant.guards->settle();
  variant.prove(replayer::numbers_at(*verified.proof));
}

/// False where nothing happened: another plan may fit.
bool StepLife::run_trial(Variant& variant, const Given& given, const Eager& eager) {
  Verified verified = verify(variant, given, eager);
  if (verified.is_nothing) {
    note_change(variant, *verified.changed);
    return false;
  }
  judge_trial(variant, verified);
  return true;
}

void StepLife::judge_trial(Variant& variant, Verified& verified) {
  // an op that leaves other bits each time says nothing about numbers
  verified.is_open = is_open(variant, verified);
  if (!verified.is_open) pin_others(variant, verified);
  verified.count_misfit(*variant.recording);
  // a plan in doubt has been replayed as it is: that is to be told
  const bool may_be_by_grouping =
      !verified.is_open && !verified.changed && verified.is_wrong() && !variant.in_doubt;
  verified.is_ungrouped = may_be_by_grouping && variant.executor->ungroup();
  journal_.tried(variant, verified);
  if (verified.is_open || verified.is_ungrouped) return;
  if (verified.skipped) {
    drop(variant,
         make_refusal(RefusalCode::kTrialSkipped, "no memory for a copy of what the plan writes"));
  } else if (verified.changed) {
    Variants::step_aside(variant, *verified.changed, journal_.calls());
    note_change(variant, *verified.changed);
  } else if (verified.is_pinned) {
    // it is tried where it was proved
  } else if (verified.is_wrong()) {
    if (variant.in_doubt) return drop_trusted(variant, *variant.in_doubt);
    drop(variant, verified.refusal(RefusalCode::kTrialDiverged));
  } else if (refuses_chances(variant)) {
    return;
  } else {
    variant.trusted = true;
    variant.in_doubt.reset();
    variant.guards->forget_moves();
    variant.guards->settle_remainders();
    note_proved(variant, verified);
    variant.recording->standing = trace::Standing::kTrusted;
    probing_.succeed(way_);
    note_verified(variant);
    session_->write_trace();
    if (!session_->trace_path.empty()) {
      journal_.wrote_trace(session_->trace_path, session_->trace_problem);
    }
  }
}

/// Determinism::kStrict: not with an op that has differed from itself.
bool StepLife::refuses_chances(const Variant& variant) {
  if (session_->options.determinism != Determinism::kStrict) return false;
  const auto known = std::ranges::find_if(variant.chances, &Chance::is_known);
  if (known == variant.chances.end()) return false;
  drop(variant, trace::refusal_at(*variant.recording, known->op, RefusalCode::kNondeterministicOp,
                                  "the op leaves other bits each time it runs on the same inputs"));
  return true;
}

/// As run_trial.
bool StepLife::run_audit(Variant& variant, const Given& given, const Eager& eager) {
  Verified verified = verify(variant, given, eager);
  if (verified.is_nothing && verified.unproved) {
    prove(variant, given, eager, &*verified.unproved);
    return true;
  }
  if (verified.is_nothing) {
    note_change(variant, *verified.changed);
    return false;
  }
  judge_audit(variant, verified);
  return true;
}

void StepLife::judge_audit(Variant& variant, Verified& verified) {
  verified.count_misfit(*variant.recording);
  verified.is_open = is_open(variant, verified);
  journal_.audited(variant, verified);
  if (verified.changed) {
    Variants::step_aside(variant, *verified.changed, journal_.calls());
    note_change(variant, *verified.changed);
    return;
  }
  if (!verified.is_wrong()) {
    if (verified.skipped) return;
    note_moves(variant);
    variant.guards->settle_remainders();
    note_proved(variant, verified);
    note_verified(variant);
    return;
  }
  if (!verified.divergence) {
    // it differs in nothing: the eager step has run, and goes on without it
    drop(variant,
         make_refusal(RefusalCode::kReplayThrew, "a trusted plan threw: " + verified.failure));
    return;
  }
  if (entry_.has_new_remainders && !verified.is_open) {
    // it has never been replayed there
    variant.guards->pin_remainders();
    return;
  }
  const Refusal refusal = verified.refusal(
      RefusalCode::kAuditDiverged, "; " + std::to_string(variant.replays) + " replays before it");
  if (!verified.is_open) return drop_trusted(variant, refusal);
  variant.trusted = false;
  variant.in_doubt = refusal;
}

/// Of a plan that has been replayed: an audit failed.
void StepLife::drop_trusted(const Variant& variant, Refusal refusal) {
  to_put_back_ = variant.verified_state;
  drop(variant, refusal);
  if (session_->options.on_divergence == OnDivergence::kThrow) {
    to_throw_ = Error(ErrorCode::kInternal, "step \"" + name_ + "\": " + refusal.text());
  }
}

void StepLife::note_verified(Variant& variant) {
  if (session_->options.on_divergence == OnDivergence::kRestore) verified_ = &variant;
}

void StepLife::keep_or_put_back() {
  if (const auto checkpoint = std::exchange(to_put_back_, nullptr)) {
    std::string left;
    for (const std::string& path : checkpoint->put_back(session_->objects)) left += " " + path;
    if (!left.empty()) {
      journal_.refused(
          make_refusal(RefusalCode::kAuditDiverged, "not put back, being others now:" + left));
    }
  }
  const Variant* verified = std::exchange(verified_, nullptr);
  for (const auto& variant : variants_) {
    if (variant.get() != verified) continue;
    variant->verified_state = nullptr;
    variant->verified_state = std::make_shared<const Checkpoint>(session_->objects);
  }
}

void StepLife::record(const Given& given, const Eager& eager) {
  std::optional<recorder::Recorded> recorded = run_recorded(given, eager);
  if (!recorded) return;
  if (std::exchange(is_asked_for_, false)) {
    session_->keep({name_, place_, {}}, with_bytes(*recorded));
    // with a plan there is nothing to be learnt from it
    if (variants_.size() != 0 || !probing_.wants_recording(way_)) return;
  }
  bind_numbers(*recorded);
  learn_from(*std::move(recorded));
}

std::optional<recorder::Recorded> StepLife::run_recorded(const Given& given, const Eager& eager) {
  recorder::Interceptor* interceptor = nullptr;
  try {
    interceptor = &interceptor_of(session_->options.interception);
  } catch (const Error& error) {
    const std::string what = error.what();
    run_eagerly(eager);
    refuse_all(make_refusal(RefusalCode::kNoInterceptor, what));
    return std::nullopt;
  }
  InsideStep::take_foreign_values();
  const std::uint64_t call = call_of_run();
  recorder::Recorded recorded =
      recorder::record([&] { return run_function(eager, InsideStep::Depth::kWatched); },
                       given.arguments, session_->objects, *interceptor, look());
  recorded.recording.call = call;
  journal_.recorded(recorded.recording, recorded.created_state);
  recorded.results.clear();
  if (recorded.notes.is_discarded()) return std::nullopt;
  session_->describe(given.declared, recorded.recording);
  recorded.recording.updates = paths_of(deferred_);
  if (InsideStep::take_foreign_values()) {
    recorded.recording.refusals.push_back(make_refusal(
        RefusalCode::kNestedStep,
        "a step of another session, which declares host values, was called inside this one"));
  }
  return recorded;
}

void StepLife::bind_numbers(recorder::Recorded& recorded) {
  if (recorded.created_state) return;
  if (recorded.notes.follows_numbers()) {
    bind_followed_numbers(recorded);
  } else {
    replayer::bind_optimizers(recorded.recording);
    replayer::refuse_optimizers(recorded.recording, recorded.recording.refusals);
  }
}

void StepLife::learn_from(recorder::Recorded recorded) {
  if (recorded.created_state) {
    if (!warm_up_) {
      warm_up_ = recorded.recording;
      warm_up_->standing = trace::Standing::kWarmUp;
    }
  } else {
    for (const Refusal& refusal : recorded.recording.refusals) journal_.refused(refusal);
  }
  std::vector<const trace::Recording*> known;
  for (const auto& variant : variants_) known.push_back(variant->recording.get());
  std::vector<const trace::Recording*> earlier;
  if (may_start_warm_ && session_->earlier) earlier = session_->earlier->plans_of(name_);
  const std::vector<Refusal> told = recorded.recording.refusals;
  if (auto agreed = probing_.take(way_, std::move(recorded), known, earlier)) {
    make_plan(*std::move(agreed));
    return;
  }
  for (const Refusal& refusal : probing_.refusals(way_)) {
    const bool is_told = std::ranges::find(told, refusal) != told.end();
    is_told ? journal_.refused_again(refusal) : journal_.refused(refusal);
  }
}

void StepLife::make_plan(Probing::Agreed agreed) {
  recorder::Recorded& recorded = agreed.recorded;
  if (variants_.resumes(recorded.recording, journal_.calls())) return;
  std::vector<Refusal> refusals =
      replayer::refusals_of(recorded.recording, replayer::why_no_backend);
  if (!refusals.empty()) {
    refuse(std::move(refusals));
    return;
  }
  if (!make_room()) {
    refuse_all(make_refusal(RefusalCode::kTooManyVariants, "there are " +
                                                               std::to_string(variants_.size()) +
                                                               " variants; the newest failed at " +
                                                               journal_.last_verdict().text()));
    return;
  }
  try {
    auto variant = make_variant(std::move(recorded), *session_, variants_made_);
    if (agreed.proved) variant->prove(*agreed.proved);
    variant->last_use = journal_.calls();
    variant->is_warm_start = agreed.with_earlier_run;
    variant->deferred = deferred_.without_tensors();
    const std::string path =
        Aftermath::unreachable_result(*variant->recording, *variant->executor, *variant->guards);
    if (!path.empty()) {
      refuse(
          {make_refusal(RefusalCode::kUnreplayableOp, path + " is a tensor that nobody tracked")});
      return;
    }
    ++variants_made_;
    if (session_->earlier) session_->earlier->compare(name_, *variant->recording);
    journal_.planned(*variant);
    if (variant->trusted) probing_.note_untried();
    variants_.add(std::move(variant));
  } catch (const std::exception& error) {
    refuse({make_refusal(RefusalCode::kUnreplayableOp,
                         std::string("no plan could be made: ") + error.what())});
  }
}

void StepLife::drop(const Variant& variant, Refusal refusal) {
  const bool was_started_warm = variant.is_warm_start && !variant.trusted;
  journal_.dropped(variant, std::string(name_of(refusal.code)));
  variants_.drop(variant);
  if (!was_started_warm) return refuse({std::move(refusal)});
  // the program is another one by now: two probes of it find out more
  may_start_warm_ = false;
  journal_.refused(refusal);
}

/// Variants leave for the one that is to be planned. False where none may.
bool StepLife::make_room() {
  std::vector<std::shared_ptr<Variant>> left;
  const bool is_free = variants_.make_room(journal_.calls(), left);
  for (const auto& variant : left) {
    const std::uint64_t unused = journal_.calls() - variant->last_use;
    journal_.dropped(*variant, "used longest ago of all, " + std::to_string(unused) + " calls");
  }
  return is_free;
}

void StepLife::refuse(std::vector<Refusal> refusals) {
  for (const Refusal& refusal : refusals) journal_.refused(refusal);
  probing_.pause(way_, std::move(refusals));
}

/// Whatever the call is entered with.
void StepLife::refuse_all(const Refusal& refusal) {
  journal_.refused(refusal);
  probing_.pause_all({refusal});
}

void StepLife::refuse_always(Refusal refusal) {
  variants_.clear();
  probing_.stop({std::move(refusal)});
}

// The step that is under way may be the one that says so.
void StepLife::invalidate(const std::string& why) {
  journal_.invalidated(why);
  if (session_->declared_now) {
    must_restart_ = true;
  } else {
    restart();
  }
}

void StepLife::restart() {
  may_start_warm_ = false;
  variants_.clear();
  probing_.restart();
}

Stats StepLife::stats() const {
  Stats stats = journal_.stats();
  for (const auto& variant : variants_) stats.variants.push_back(variant->stats());
  if (session_ != nullptr) {
    stats.trace_problem = session_->trace_problem;
    if (session_->ledger) stats.ledger_problem = session_->ledger->problem();
    stats.log_problem = session_->log.problem();
  }
  return stats;
}

std::vector<std::string> StepLife::differences() const {
  constexpr std::size_t kMostInWords = 4;
  std::vector<std::string> differences;
  for (const auto& variant : variants_) {
    const Variant& first = **variants_.begin();
    differences.push_back(
        variant.get() == &first
            ? ""
            : "differs from variant " + std::to_string(first.number) + " in: " +
                  trace::text_of(trace::guard_differences(*first.recording, *variant->recording),
                                 kMostInWords));
  }
  return differences;
}

std::string StepLife::explain() const {
  return session::explain(name_, place_, stats(), differences());
}

trace::Step StepLife::to_trace(bool with_state) const {
  trace::Step step{name_, place_, {}};
  if (warm_up_) step.recordings.push_back(*warm_up_);
  for (const auto& variant : variants_) {
    trace::Recording& recording = step.recordings.emplace_back(*variant->recording);
    const bool is_trusted = recording.standing == trace::Standing::kTrusted;
    const auto fits = [&] {
      return variant->guards->fits_program() && session_->fits_places(recording);
    };
    if (!with_state) continue;
    variant->guards->describe_outside(recording);
    if (is_trusted && !fits()) recording.standing = trace::Standing::kAgreed;
  }
  return step;
}

}  // namespace steptape::session
