#pragma once

#include <ATen/core/stack.h>

#include "replayer/cpu/call.h"

namespace steptape::replayer::cpu {

/// Does the call as it was recorded: what a kernel falls back to where it finds values whose bits
/// it does not vouch for. For calls whose results are among their arguments.
inline void dispatch(const Call& call) {
  torch::jit::Stack stack(call.arguments);
  call.callee.callBoxed(stack);
}

}  // namespace steptape::replayer::cpu
