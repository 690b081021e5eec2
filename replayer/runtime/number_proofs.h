#pragma once

#include <functional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "replayer/planner/numbers/bindings.h"
#include "steptape/refusal.h"
#include "steptape/verdict.h"
#include "trace/model.h"
#include "trace/proved_values.h"

namespace steptape::replayer {

/// What the plan takes for given turned out otherwise in mid-run: an op returned another shape,
/// dtype or layout, or gave the host another value. Everything is as it was before the run.
struct AssumptionViolated : std::runtime_error {
  AssumptionViolated(RefusalCode refusal, Verdict what)
      : std::runtime_error(what.text()), code(refusal), verdict(std::move(what)) {}
  RefusalCode code;
  Verdict verdict;
};

/// The same of what an op or the plan threw in mid-run, though it did not when it was recorded: of
/// code kReplayThrew.
AssumptionViolated undone_for(const std::exception& error);
/// Of what LibTorch says; after it come advice and stacks.
std::string first_line(const std::exception& error);

/// The run would have been done in a way in which none was compared with the eager step
/// (ExecutorOptions::is_compared). Everything is as it was before it.
struct Uncompared : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// A number of a run: of a host read, or what a formula gives an op.
struct NumberOfRun {
  enum class Of { kRead, kFormula } of;
  trace::Index position;  ///< in Recording::reads or Recording::formulas
};

/// A run was undone, for a number had a value at which its plan was not proved.
struct Unproved : AssumptionViolated {
  Unproved(RefusalCode code, Verdict what, NumberOfRun its)
      : AssumptionViolated(code, std::move(what)), number(its) {}
  NumberOfRun number;
};

/// The values at which a plan was proved, of numbers that are known in mid-run alone: host reads
/// that may give any value (ReadUse::kFree), and what formulas give ops. A formula has its own,
/// since its numbers may be many where it gives one (`max(0.1 * epoch, 2)`), or turn where they do
/// not (`10 - epoch`).
class NumberProofs {
 public:
  /// Proved at what `recording`, the plan's own, has read; it must outlive this.
  explicit NumberProofs(const trace::Recording& recording);
  /// As a file has it: at what Recording::proofs say, and at any value of other numbers.
  static NumberProofs of_file(const trace::Recording& recording);
  /// Writes into the proofs of `recording`, a copy of the plan's, what is known of their formulas.
  /// `is_pinned` tells that the guards hold the plan to the proved values of a leaf.
  void describe(trace::Recording& recording,
                const std::function<bool(const std::string&)>& is_pinned) const;

  bool holds(NumberOfRun number, double value) const;
  /// What it would hold for: "2.0, 3.0 (proved)".
  std::string words(NumberOfRun number) const;
  /// From now on it may have the proved values alone.
  bool is_pinned(NumberOfRun number) const { return of(number).is_pinned; }
  void pin(NumberOfRun number) { of(number).is_pinned = true; }
  /// The plan was proved at these as well.
  void add(const Numbers& numbers);
  /// Pins those that another recording has at values at which the plan does not hold. False where
  /// there are none.
  bool pin_others(const Numbers& numbers);

 private:
  struct Proof {
    std::string path = {};  ///< of a read
    /// False of a formula that enters no op, or is one number: that is held by itself.
    bool is_held = true;
    bool enters_op = true;
    trace::ProvedValues proved = {};
    bool is_pinned = false;
    bool holds(double value) const {
      return is_pinned ? proved.is_among(value) : proved.holds(value);
    }
  };
  const Proof& of(NumberOfRun number) const {
    return (number.of == NumberOfRun::Of::kRead ? reads_ : formulas_)[number.position];
  }
  Proof& of(NumberOfRun number) {
    return (number.of == NumberOfRun::Of::kRead ? reads_ : formulas_)[number.position];
  }
  /// Calls `visit(proof, value)` for each number that `numbers` tell.
  template <typename Visit>
  void for_each(const Numbers& numbers, Visit&& visit);

  const trace::Recording* recording_;
  std::vector<Proof> reads_;
  std::vector<Proof> formulas_;
};

}  // namespace steptape::replayer
