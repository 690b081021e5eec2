#pragma once

#include <ATen/core/stack.h>

#include <string>

#include "replayer/planner/program.h"
#include "replayer/runtime/assumption_violated.h"
#include "replayer/runtime/call.h"
#include "replayer/runtime/memory.h"

namespace steptape::replayer {

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
