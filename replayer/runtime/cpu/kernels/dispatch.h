#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>

#include <vector>

#include "replayer/runtime/call.h"

namespace steptape::replayer::cpu {

/// Does the call as it was recorded: what a kernel falls back to where it finds values whose bits
/// it does not vouch for. `results` are those that KernelSite has. Throws what the op throws.
void dispatch(const Call& call, const std::vector<at::Tensor>& results);

/// Copies the tensors that a call left on the stack to the results that are there for them.
void copy_made(const torch::jit::Stack& stack, const std::vector<at::Tensor>& results);

}  // namespace steptape::replayer::cpu
