#pragma once

#include <memory>
#include <optional>

#include "guards/entry.h"
#include "session/step_context.h"
#include "session/variant.h"
#include "session/variants.h"
#include "session/verify/checkpoint.h"
#include "session/verify/verification.h"
#include "steptape/error.h"

namespace steptape::session {

/// What it means for a plan how it did in one call: it is trusted, holds for fewer numbers than
/// before, is tried once more, or is given up. Says so to the journal.
class Judge {
 public:
  /// All must outlive this.
  Judge(StepContext& step, const Given& given, const guards::Entry& entry, Mismatches& mismatches)
      : step_(step), given_(given), entry_(entry), mismatches_(mismatches) {}

  /// It was compared with the eager step for the first time.
  void tried(Variant& variant, Verified& verified);
  /// It was trusted, and was compared with the eager step again.
  void audited(Variant& variant, Verified& verified);
  /// It was replayed, and is right as far as anybody knows.
  void replayed(Variant& variant);
  /// Its run was undone: the program took another way.
  void undone(Variant& variant, const replayer::AssumptionViolated& changed);
  /// The eager step was recorded in its place, where a number (`unproved`, if a run found it) has a
  /// value at which it was not proved, and does what the plan would have done.
  void proved(Variant& variant, const trace::Recording& proof);
  /// The same, and the eager step does something else, `parted` if the difference was found. Where
  /// the plan is kept for fewer numbers, what speaks against it.
  std::optional<Refusal> disproved(Variant& variant, const trace::Recording& proof,
                                   const std::optional<trace::Difference>& parted,
                                   const replayer::Unproved* unproved);
  /// The call is over: keeps the state that it has verified, or puts an earlier one back, as
  /// Options::on_divergence says.
  void keep_or_put_back();
  /// Throws what the call is to throw for a plan that was wrong (OnDivergence::kThrow).
  void throw_if_wrong();

 private:
  void drop(const Variant& variant, Refusal refusal);
  void drop_trusted(const Variant& variant, Refusal refusal);
  void note_moves(Variant& variant);
  void note_verified(Variant& variant);
  static bool pin(Variant& variant, const replayer::Unproved* unproved);
  static void pin_others(Variant& variant, Verified& verified);
  static void note_proved(Variant& variant, const Verified& verified);
  static bool is_open(Variant& variant, const Verified& verified);
  bool refuses_chances(const Variant& variant);

  StepContext& step_;
  const Given& given_;
  const guards::Entry& entry_;
  Mismatches& mismatches_;
  Variant* verified_ = nullptr;  ///< by this call: its state is to be kept
  std::shared_ptr<const Checkpoint> to_put_back_;
  std::optional<Error> to_throw_;  ///< a failed audit
};

}  // namespace steptape::session
