#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <unordered_map>
#include <vector>

#include "replayer/runtime/cuda/given_gradients.h"
#include "replayer/runtime/cuda/plan/device_plan.h"
#include "replayer/runtime/cuda/plan/static_memory.h"
#include "replayer/runtime/executor.h"

namespace steptape::replayer::cuda {

/// What a run gives to the user: in new memory, where graphs would write it again. Each buffer has
/// an allocation of its own, as an eager step's has: who works on it on another stream tells the
/// allocator so (record_stream), which knows none but its own.
class OutcomeMemory {
 public:
  OutcomeMemory(c10::Device device, Gradients gradients) : device_(device), gradients_(gradients) {}

  /// Allocates it. Throws what allocation throws.
  void take(const DevicePlan& plan);
  /// What the run left, copied into it, without the numbers. Gradients that stay where the graphs
  /// write them are `given`, as those of `owner`.
  Outcome outcome(DevicePlan& plan, GivenGradients& given, const void* owner);
  void let_go() { memory_.clear(); }

 private:
  void take(const DevicePlan& plan, trace::TensorId id);
  at::Tensor tensor(DevicePlan& plan, trace::TensorId id);

  /// Of one buffer.
  struct Memory {
    c10::Storage storage;
    bool is_filled = false;
  };
  struct Copies {
    std::vector<at::Tensor> from, to;
  };

  c10::Device device_;
  Gradients gradients_;
  std::unordered_map<trace::BufferId, Memory> memory_;
  std::map<at::ScalarType, Copies> copies_;  ///< each done by one call
};

}  // namespace steptape::replayer::cuda
