#pragma once

#include <ATen/core/stack.h>

#include "replayer/planner/program.h"
#include "replayer/runtime/cuda/plan/foreach_operators.h"

namespace steptape::replayer::cuda {

/// Whether the operator leaves the bits that op `op` of the program does, on the device and for the
/// dtype and kinds of numbers that the op was recorded with. It is tried on made-up tensors the
/// first time that a process asks: those who write a formula twice round it in two kinds, and
/// LibTorch does (`_foreach_div` divides where `div` multiplies by the reciprocal). Draws from no
/// generator. Waits for the current stream.
bool agrees(const Program& program, const ForeachOperator& by, trace::Index op);

/// The number that stands for `value` where an operator takes it in the way of `kind`, for tensors
/// of `dtype`.
c10::IValue foreach_number(const c10::IValue& value, ForeachArgument::Kind kind,
                           at::ScalarType dtype);

/// Gives the operator the defaults of the arguments that are not on the stack yet.
void add_defaults(const c10::FunctionSchema& schema, torch::jit::Stack& stack);

}  // namespace steptape::replayer::cuda
