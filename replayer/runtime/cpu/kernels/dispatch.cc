#include "replayer/runtime/cpu/kernels/dispatch.h"

#include "live/values.h"

namespace steptape::replayer::cpu {

void dispatch(const Call& call, const std::vector<at::Tensor>& results) {
  torch::jit::Stack stack(call.arguments);
  call.callee.callBoxed(stack);
  if (call.copies) copy_made(stack, results);
}

void copy_made(const torch::jit::Stack& stack, const std::vector<at::Tensor>& results) {
  std::size_t next = 0;
  for (const c10::IValue& value : stack) {
    live::for_each_tensor(value, [&](const at::Tensor& made) { results.at(next++).copy_(made); });
  }
}

}  // namespace steptape::replayer::cpu
