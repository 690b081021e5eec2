#include "replayer/cpu/kernels/dispatch.h"

#include <ATen/core/stack.h>

#include "live/values.h"

namespace steptape::replayer::cpu {

void dispatch(const Call& call, const std::vector<at::Tensor>& results) {
  torch::jit::Stack stack(call.arguments);
  call.callee.callBoxed(stack);
  if (!call.copies) return;
  std::size_t next = 0;
  for (const c10::IValue& value : stack) {
    live::for_each_tensor(value, [&](const at::Tensor& made) { results.at(next++).copy_(made); });
  }
}

}  // namespace steptape::replayer::cpu
