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
  explicit Evaluator(const trace::Recording& recording);

  /// Begins a run. `leaves` has one value for each leaf; those of host reads are ignored. Evaluates
  /// every formula that reads none of them.
  void begin(std::span<const double> leaves);
  /// Op `op` gave the host `value`: evaluates the formulas that wait for it. False when none does.
  bool read(trace::Index op, double value);

  double value(trace::Index formula) const { return values_[formula]; }
  /// The op whose host read a formula waits for, the last if there are several; kNone: it waits for
  /// none.
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
  std::vector<std::vector<trace::Index>> leaf_of_op_;  ///< by op, where there are host reads
  std::vector<std::vector<trace::Index>> waiting_;     ///< formulas, by the op that they wait for
  std::vector<trace::Index> shape_;                    ///< of each formula in `memos_`, or kNone
  std::vector<trace::Index> counter_;                  ///< the one counter it reads, or kNone
  std::vector<Memo> memos_;
  std::uint64_t run_ = 0;
};

}  // namespace steptape::replayer
