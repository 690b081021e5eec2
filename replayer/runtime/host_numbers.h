#pragma once

#include <optional>
#include <string>
#include <vector>

#include "replayer/planner/numbers/evaluator.h"
#include "replayer/planner/program.h"
#include "replayer/runtime/call.h"
#include "replayer/runtime/memory.h"
#include "replayer/runtime/number_proofs.h"
#include "replayer/runtime/run_log.h"
#include "trace/numbers.h"

namespace steptape::replayer {

/// The host's side of a run: evaluates formulas, puts what they give into the arguments of calls
/// and the elements of host-made tensors, and looks at what ops give the host.
class HostNumbers {
 public:
  /// Sets Call::read. `refilled` has the constants that are new in each run (see Bound). Program,
  /// memory and calls must outlive this.
  HostNumbers(const Program& program, const std::vector<trace::BufferId>& refilled, Memory& memory,
              std::vector<Call>& calls);

  /// Begins a run: everything that waits for no read is put where it belongs.
  void begin(const RunNumbers& given);
  /// What `call`, which reads, has just given the host; then everything that waited for it. Throws
  /// AssumptionViolated when the recording's program would not have gone on in the same way.
  void take_read(const Call& call, const c10::IValue& given);
  /// What a call leaves that reads one element of the host's memory, and need not be made for it.
  std::optional<c10::IValue> element(const Call& call) const;
  /// One of Recording::numbers, when the run is over.
  double returned(const trace::Number& number) const;

 private:
  /// Where a number goes: an argument of a call, an item of one that is a list, or an element of a
  /// host-made tensor.
  struct Patch {
    trace::Value recorded;  ///< its kind stays
    c10::IValue* argument;  ///< null: an element
    trace::Index item;      ///< of the argument or the buffer; kNone: the argument itself
    trace::BufferId buffer;
    trace::Element element;
  };
  /// A number that is computed anew in each run. Where it is what it was in the run before, nothing
  /// is put anywhere.
  struct Computed {
    trace::Index formula = trace::kNone;
    bool was_float = true;        ///< finite as a float32 when it was recorded
    bool is_overwritten = false;  ///< ops write where it goes
    std::optional<double> put = std::nullopt;
    std::vector<Patch> patches = {};
  };
  /// What the host is given, and what waits for that.
  struct Read {
    trace::ReadUse use;
    trace::Value recorded;
    trace::TensorId element;  ///< the one element that is read, in the host's memory; or kNoTensor
    std::vector<Computed> computed = {};
    std::vector<trace::Predicate> predicates = {};
  };
  const trace::Recording& recording() const { return *program_.recording; }
  /// In a run, by position in Recording::reads.
  std::vector<trace::Index> order_of_reads() const;
  /// Adds a place to what its formula computes; `refilled` as for the constructor.
  void prepare(const trace::ScalarSite& site, const trace::Elements& elements,
               const std::vector<trace::BufferId>& refilled, Computed& computed);
  void check(const Computed& computed, double number) const;
  void apply(Computed& computed);
  void put(const Patch& patch, trace::Index formula, double number);
  /// What a formula gives is not what it should be.
  Verdict misfit(trace::Index formula, std::string wanted, double number) const;
  void check_predicates(const Read& read) const;
  /// Throws Unproved where the plan was not proved at the value of a number, and might be well.
  template <typename Words>
  void check_proved(NumberOfRun number, double value, Words&& words) const;

  const Program& program_;
  Memory& memory_;
  std::vector<Call>& calls_;
  std::vector<trace::Index> call_of_;  ///< by op: its position in `calls`, or kNone
  Evaluator evaluator_;
  std::vector<trace::Index> read_of_;  ///< by op: in Recording::reads, or kNone
  std::vector<Read> reads_;
  std::vector<Computed> computed_;  ///< known when the run begins
  std::vector<double> read_values_;
  RunNumbers given_;  ///< its proofs; of leaves the evaluator has a copy
};

}  // namespace steptape::replayer
