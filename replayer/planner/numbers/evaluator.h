#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "trace/model.h"

namespace steptape::replayer {

/// Evaluates the formulas of a recording, each once a run. Formulas that differ only in whose step
/// counter they read (a number of the state, or a host read), as those of one parameter group do,
/// share a value while the counters are equal: a load and a compare in place of a power.
class Evaluator {
 public:
  /// `order` has the place in a run of each host read; empty: they come as recorded.
  explicit Evaluator(const trace::Recording& recording, std::span<const trace::Index> order = {});

  /// Begins a run. `leaves` has one value for each leaf; those of host reads are ignored. Evaluates
  /// every formula that reads none of them.
  void begin(std::span<const double> leaves);
  /// A host read, by its position in Recording::reads, gave `value`: evaluates the formulas that
  /// wait for it. False when none does.
  bool read(trace::Index read, double value);

  double value(trace::Index formula) const { return values_[formula]; }
  /// The host read that a formula waits for, the last in a run if there are several, by its
  /// position in Recording::reads; kNone: it waits for none.
  trace::Index waits_for(trace::Index formula) const { return waits_for_[formula]; }

 private:
  struct Memo {
    double count = 0;
    double value = 0;
    std::uint64_t run = 0;
  };
  void evaluate(trace::Index formula);

  const trace::Recording& recording_;
  std::vector<double> leaves_;
  std::vector<double> values_;
  std::vector<trace::Index> waits_for_;
  std::vector<std::vector<trace::Index>> leaves_of_read_;
  std::vector<std::vector<trace::Index>> waiting_;  ///< formulas, by the read that they wait for
  std::vector<trace::Index> shape_;                 ///< of each formula in `memos_`, or kNone
  std::vector<trace::Index> counter_;               ///< the one counter it reads, or kNone
  std::vector<Memo> memos_;
  std::uint64_t run_ = 0;
};

}  // namespace steptape::replayer
