#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/stack.h>

#include <cstdint>
#include <string>
#include <vector>

#include "replayer/planner/program.h"
#include "replayer/runtime/call.h"
#include "replayer/runtime/executor.h"
#include "replayer/runtime/memory.h"
#include "replayer/runtime/number_proofs.h"

namespace steptape::replayer {

/// What a run does, in its order.
struct Calls {
  std::vector<Call> calls;
  std::vector<at::Generator> generators;  ///< the default one, then those that ops name
  /// Adopted buffers that the user gets, let go of at the end.
  std::vector<trace::BufferId> trailing_releases;
};

/// Where an op stands in a run.
struct Place {
  trace::Index op = 0;
  bool is_once = false;  ///< as its instruction says: done in the first run alone
  /// As places_of says; -1 of what is done once.
  std::int64_t at = 0;
};

/// The ops of `program` that are calls, in the order of a run: first what is done once, then the
/// others by their `places` (see places_of).
std::vector<Place> order_of(const Program& program, const std::vector<std::int64_t>& places);

/// The same as calls over the tensors of `memory`. Throws Error (data_loss) when a value does not
/// fit its operator.
Calls calls_of(const Program& program, const Memory& memory, const GeneratorOf& generator,
               const std::vector<std::int64_t>& places);

/// Takes the results of calls into the plan's memory, and sees that they are as recorded.
class CallResults {
 public:
  CallResults(const Program& program, Memory& memory) : program_(program), memory_(memory) {}

  /// What the call left on the stack becomes memory of the plan. Throws AssumptionViolated where it
  /// is not as recorded.
  void adopt(const Call& call, const torch::jit::Stack& stack);
  /// An out variant reshapes a result of the wrong shape instead of refusing it. Throws
  /// AssumptionViolated.
  void check_placed(const Call& call) const;

 private:
  void adopt(const Call& call, std::size_t position, const at::Tensor& result);
  const trace::Recording& recording() const { return *program_.recording; }

  const Program& program_;
  Memory& memory_;
};

}  // namespace steptape::replayer
