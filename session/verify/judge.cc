#include "session/verify/judge.h"

#include <algorithm>
#include <string>
#include <utility>

#include "replayer/planner/numbers/contradiction.h"
#include "session/session_state.h"
#include "trace/refusals.h"

namespace steptape::session {

using trace::make_refusal;

namespace {

/// Of a plan that does something else than the eager step, though nothing says when.
Refusal mismatch_refusal(const trace::Recording& plan, const trace::Difference& parted) {
  const std::string message = "a number enters the step in a way that no formula covers; " +
                              parted.path + ": plan " + parted.expected + ", eager " + parted.found;
  return parted.op < plan.ops.size()
             ? trace::refusal_at(plan, parted.op, RefusalCode::kScalarVaries, message)
             : make_refusal(RefusalCode::kScalarVaries, message);
}

}  // namespace

void Judge::tried(Variant& variant, Verified& verified) {
  // an op that leaves other bits each time says nothing about numbers
  verified.is_open = is_open(variant, verified);
  if (!verified.is_open) pin_others(variant, verified);
  verified.count_mismatch(*variant.recording);
  // a plan in doubt has been replayed as it is: that is to be told
  const bool is_wrong = verified.threw() || (!verified.changed && verified.is_wrong());
  const bool may_be_by_grouping = !verified.is_open && is_wrong && !variant.in_doubt;
  verified.is_ungrouped = may_be_by_grouping && variant.executor->ungroup();
  step_.journal.tried(variant, verified);
  if (verified.is_open || verified.is_ungrouped) return;
  if (verified.skipped) {
    drop(variant,
         make_refusal(RefusalCode::kTrialSkipped, "no memory for a copy of what the plan writes"));
  } else if (verified.changed) {
    Variants::back_off(variant, *verified.changed, step_.journal.calls());
    undone(variant, *verified.changed);
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
    variant.recording->status = trace::Status::kTrusted;
    step_.plans.note_trusted(given_.way());
    note_verified(variant);
    SessionTrace& trace = step_.session.trace;
    trace.write();
    if (!trace.path().empty()) {
      step_.journal.wrote_trace(trace.path(), trace.problem());
    }
  }
}

void Judge::audited(Variant& variant, Verified& verified) {
  verified.count_mismatch(*variant.recording);
  verified.is_open = is_open(variant, verified);
  step_.journal.audited(variant, verified);
  if (verified.changed) {
    Variants::back_off(variant, *verified.changed, step_.journal.calls());
    undone(variant, *verified.changed);
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

void Judge::replayed(Variant& variant) {
  note_moves(variant);
  variant.last_held = step_.journal.call();
  step_.journal.replayed(variant);
  step_.plans.variants().note_replay();
}

void Judge::undone(Variant& variant, const replayer::AssumptionViolated& changed) {
  mismatches_.add(variant, changed.verdict);
  step_.journal.did_not_fit(mismatches_.all());
  if (!step_.plans.variants().note_change(variant)) return;
  drop(variant, make_refusal(changed.code, std::string(changed.what()) + "; " +
                                               std::to_string(variant.changes) +
                                               " runs were undone for it"));
}

void Judge::proved(Variant& variant, const trace::Recording& proof) {
  variant.guards->settle();
  variant.prove(replayer::numbers_at(proof));
  variant.last_held = step_.journal.call();
}

std::optional<Refusal> Judge::disproved(Variant& variant, const trace::Recording& proof,
                                        const std::optional<trace::Difference>& parted,
                                        const replayer::Unproved* unproved) {
  const trace::Difference difference = parted.value_or(trace::Difference{
      trace::DifferenceKind::kOpStream, trace::kNone, "the step", "as recorded", "refused"});
  Refusal refusal = mismatch_refusal(*variant.recording, difference);
  const bool is_other_way =
      unproved != nullptr && replayer::took_another_way(*variant.recording, proof, difference);
  if (is_other_way) {
    undone(variant, *unproved);
    return std::nullopt;
  }
  // a plan that holds for fewer numbers from here on may still be right there
  const bool has_same_ops = difference.kind != trace::DifferenceKind::kOpStream;
  const bool pins_reads =
      has_same_ops && variant.number_proofs.pin_others(replayer::numbers_at(proof));
  const bool pins_numbers = pin(variant, unproved);
  if (pins_numbers || pins_reads) return refusal;
  drop(variant, std::move(refusal));
  return std::nullopt;
}

/// From here on the plan holds for those values of its numbers alone at which it was proved. False
/// where it was proved at all that they are.
bool Judge::pin(Variant& variant, const replayer::Unproved* unproved) {
  const bool pins_numbers = variant.guards->pin();
  if (unproved == nullptr) return pins_numbers;
  variant.number_proofs.pin(unproved->number);
  return true;
}

/// The same, where a trial found numbers at which the plan does something else.
void Judge::pin_others(Variant& variant, Verified& verified) {
  const bool is_other = verified.mismatch || verified.is_wrong();
  if (!is_other || !verified.proof || verified.changed) return;
  const bool pins_reads = variant.number_proofs.pin_others(replayer::numbers_at(*verified.proof));
  verified.is_pinned = pin(variant, nullptr) || pins_reads;
}

void Judge::note_proved(Variant& variant, const Verified& verified) {
  if (!verified.proves_numbers) return;
  variant.guards->settle();
  variant.prove(replayer::numbers_at(*verified.proof));
}

/// Whether an op is to blame that may have left other bits by chance: the next trial tells.
bool Judge::is_open(Variant& variant, const Verified& verified) {
  if (verified.skipped || verified.changed || !verified.is_wrong() || !verified.divergence)
    return false;
  const Divergence& divergence = *verified.divergence;
  return divergence.is_by_chance && variant.suspect(static_cast<trace::Index>(divergence.op_index));
}

/// Determinism::kStrict: not with an op that has differed from itself.
bool Judge::refuses_chances(const Variant& variant) {
  if (step_.session.options.determinism != Determinism::kStrict) return false;
  const auto known = std::ranges::find_if(variant.suspects, &SuspectOp::is_known);
  if (known == variant.suspects.end()) return false;
  drop(variant, trace::refusal_at(*variant.recording, known->op, RefusalCode::kNondeterministicOp,
                                  "the op leaves other bits each time it runs on the same inputs"));
  return true;
}

/// The plan has run on the addresses that the guards found, which may be others than before.
void Judge::note_moves(Variant& variant) {
  if (entry_.moved.empty()) return;
  variant.guards->forget_moves();
  ++variant.rebinds;
  step_.journal.rebound(variant, entry_.moved);
}

void Judge::drop(const Variant& variant, Refusal refusal) {
  step_.plans.drop(variant, std::move(refusal), given_.way());
}

/// Of a plan that has been replayed: an audit failed.
void Judge::drop_trusted(const Variant& variant, Refusal refusal) {
  to_put_back_ = variant.verified_state;
  if (step_.session.options.on_divergence == OnDivergence::kThrow) {
    to_throw_ = Error(ErrorCode::kInternal, "step \"" + step_.name + "\": " + refusal.text());
  }
  drop(variant, std::move(refusal));
}

void Judge::note_verified(Variant& variant) {
  if (step_.session.options.on_divergence == OnDivergence::kRestore) verified_ = &variant;
}

void Judge::keep_or_put_back() {
  if (const auto checkpoint = std::exchange(to_put_back_, nullptr)) {
    std::string left;
    for (const std::string& path : checkpoint->put_back(step_.session.objects)) left += " " + path;
    if (!left.empty()) {
      step_.journal.refused(
          make_refusal(RefusalCode::kAuditDiverged, "not put back, being others now:" + left));
    }
  }
  const Variant* verified = std::exchange(verified_, nullptr);
  for (const auto& variant : step_.plans.variants()) {
    if (variant.get() != verified) continue;
    variant->verified_state = nullptr;
    variant->verified_state = std::make_shared<const Checkpoint>(step_.session.objects);
  }
}

void Judge::throw_if_wrong() {
  if (to_throw_) throw *std::exchange(to_throw_, std::nullopt);
}

}  // namespace steptape::session
