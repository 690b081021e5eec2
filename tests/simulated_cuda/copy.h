#pragma once

#include "tests/simulated_cuda/operator.h"

namespace steptape::tests::simulated {

/// `aten::copy_` between device and host and within the device, in the steps of LibTorch's own: one
/// cudaMemcpyAsync between contiguous tensors of one type, and a staging tensor where they are not.
/// LibTorch's own has no kernel at the key CUDA that could stay: it launches compiled ones.
class Copy : public c10::OperatorKernel {
 public:
  explicit Copy(const c10::OperatorHandle& handle) : on_device_(handle, NumberRule::kDouble) {}

  void operator()(const c10::OperatorHandle& handle, c10::DispatchKeySet keys,
                  torch::jit::Stack* stack);

 private:
  Operator on_device_;
};

}  // namespace steptape::tests::simulated
