#pragma once

#include <ATen/core/Tensor.h>

#include <unordered_map>

#include "replayer/cuda/device_plan.h"
#include "replayer/cuda/given_gradients.h"
#include "replayer/cuda/static_memory.h"
#include "replayer/run/executor.h"

namespace steptape::replayer::cuda {

/// What a run gives to the user: in new memory, where graphs would write it again.
class OutcomeMemory {
 public:
  OutcomeMemory(c10::Device device, Gradients gradients) : device_(device), gradients_(gradients) {}

  /// Allocates it. Throws what allocation throws.
  void take(const DevicePlan& plan);
  /// Copies what the run left into it.
  void fill(const DevicePlan& plan);
  /// All but the numbers. Gradients that stay where the graphs write them are `given`.
  Outcome outcome(DevicePlan& plan, GivenGradients& given) const;
  void let_go() { memory_.clear(); }

 private:
  void take(const DevicePlan& plan, trace::TensorId id);
  at::Tensor tensor(DevicePlan& plan, GivenGradients& given, trace::TensorId id) const;

  c10::Device device_;
  Gradients gradients_;
  std::unordered_map<trace::BufferId, c10::Storage> memory_;
};

}  // namespace steptape::replayer::cuda
