#pragma once

#include <optional>
#include <vector>

#include "replayer/planner/numbers/evaluator.h"
#include "replayer/planner/program.h"
#include "replayer/runtime/assumption_violated.h"
#include "replayer/runtime/call.h"
#include "replayer/runtime/memory.h"
#include "replayer/runtime/run.h"
#include "trace/numbers.h"

namespace steptape::replayer {

/// The host's side of a run: evaluates formulas, puts what they give into the arguments of calls
/// and the elements of host-made tensors, and looks at what ops give the host.
class HostNumbers {
 public:
  /// Sets Call::read. All three must outlive this.
  HostNumbers(const Program& program, Memory& memory, std::vector<Call>& calls);

  /// Begins a run: everything that waits for no read is put where it belongs.
  void begin(const RunNumbers& given);
  /// What `call`, which reads, has just given the host; then everything that waited for it. Throws
  /// Changed when the recording's program would not have gone on in the same way.
  void take_read(const Call& call, const c10::IValue& given);
  /// What a call leaves that reads one element of the host's memory, and need not be made for it.
  std::optional<c10::IValue> element(const Call& call) const;
  /// One of Recording::numbers, when the run is over.
  double returned(const trace::Number& number) const;

 private:
  /// Where a number goes that is computed anew in each run.
  struct Patch {
    std::size_t call = 0;  ///< of an argument
    trace::ScalarSite site;
    trace::Value recorded;  ///< its kind stays; its value is the one that stands there now
  };
  const trace::Recording& recording() const { return *program_.recording; }
  /// `call_of` has the position in `calls` of each op, or kNone.
  void prepare(const trace::ScalarSite& site, const trace::Elements& elements,
               const std::vector<trace::Index>& call_of);
  void apply(const Patch& patch);
  /// Throws Unproved where the plan was not proved at the value of a number, and might be well.
  template <typename Words>
  void check_proved(NumberOfRun number, double value, Words&& words) const;

  const Program& program_;
  Memory& memory_;
  std::vector<Call>& calls_;
  Evaluator evaluator_;
  std::vector<trace::Index> read_of_;                ///< by op: in Recording::reads, or kNone
  std::vector<Patch> patches_;                       ///< known when the run begins
  std::vector<std::vector<Patch>> patches_of_read_;  ///< by position in Recording::reads
  std::vector<std::vector<trace::Predicate>> predicates_of_read_;  ///< the same
  std::vector<trace::TensorId> element_of_read_;  ///< what HostNumbers::element reads, or kNoTensor
  std::vector<double> read_values_;
  RunNumbers given_;  ///< its proofs; of leaves the evaluator has a copy
};

}  // namespace steptape::replayer
