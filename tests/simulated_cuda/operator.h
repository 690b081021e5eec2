#pragma once

#include <ATen/core/boxing/OperatorKernel.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/simulated_cuda/call.h"

namespace steptape::tests::simulated {

/// The kernel that stands at the key CUDA for one operator: it does what the operator's CPU kernel
/// does, over the same bytes, as one piece of deferred work on the current stream.
///
/// What the outputs look like is known before the work has run: from the operator's Meta kernel, or
/// from a run of its CPU kernel over ones. An operator whose outputs depend on values, or that
/// answers the host, waits for the stream instead, and so cannot be captured, as on a real device.
class Operator : public c10::OperatorKernel {
 public:
  Operator(const c10::OperatorHandle& handle, NumberRule rule);

  void operator()(const c10::OperatorHandle& handle, c10::DispatchKeySet keys,
                  torch::jit::Stack* stack);

 private:
  struct Geometry;
  at::Tensor allocate(const Geometry& geometry) const;
  void resize_outputs(torch::jit::Stack& arguments, const torch::jit::Stack& shapes) const;
  bool needs_values(const torch::jit::Stack& arguments) const;
  void launch(std::shared_ptr<Call> call, const torch::jit::Stack& arguments,
              std::vector<std::vector<at::Tensor>> outputs) const;
  std::vector<std::vector<at::Tensor>> run_at_once(const Call& call, torch::jit::Stack& arguments,
                                                   torch::jit::Stack& results) const;
  void push_results(torch::jit::Stack& stack, torch::jit::Stack arguments,
                    const std::vector<std::vector<at::Tensor>>& outputs) const;

  c10::OperatorHandle handle_;
  std::string name_;
  NumberRule rule_;
  bool has_meta_;
  bool is_random_;
  bool has_out_;  ///< arguments that are resized to the result
  bool returns_only_tensors_;
  std::vector<std::optional<std::size_t>> returned_argument_;  ///< of each return that is one
  std::optional<c10::OperatorHandle> multiplication_;          ///< for a division by a number
};

}  // namespace steptape::tests::simulated
