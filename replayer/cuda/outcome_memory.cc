#include "replayer/cuda/outcome_memory.h"

#include <c10/core/Allocator.h>

#include "live/device_bytes.h"
#include "replayer/run/tensor_on.h"

namespace steptape::replayer::cuda {
namespace {

/// In memory that each run writes again.
bool is_graphs(const DevicePlan& plan, trace::BufferId buffer) {
  const Placement placement = plan.program.buffers[buffer].placement;
  return placement == Placement::kCaptured || placement == Placement::kLanding;
}

}  // namespace

void OutcomeMemory::take(const DevicePlan& plan) {
  for (const trace::TensorId id : plan.recording().results) take(plan, id);
  if (gradients_ == Gradients::kStatic) return;
  for (const trace::ExitGradient& gradient : plan.recording().exit_gradients) {
    take(plan, gradient.tensor);
  }
}

void OutcomeMemory::take(const DevicePlan& plan, trace::TensorId id) {
  if (id == trace::kNoTensor) return;
  const trace::BufferId buffer = plan.recording().tensors[id].buffer;
  if (!is_graphs(plan, buffer)) return;
  auto [found, is_new] = memory_.try_emplace(buffer);
  if (!is_new) return;
  found->second =
      c10::Storage(c10::Storage::use_byte_size_t(), plan.recording().buffers[buffer].bytes,
                   c10::GetAllocator(device_.type()), /*resizable=*/true);
}

void OutcomeMemory::fill(const DevicePlan& plan) {
  for (auto& [buffer, storage] : memory_) {
    live::copy_bytes(storage.mutable_data(), device_, plan.memory.address(buffer), device_,
                     storage.nbytes());
  }
}

Outcome OutcomeMemory::outcome(DevicePlan& plan, GivenGradients& given) const {
  Outcome outcome;
  for (const trace::TensorId id : plan.recording().results) {
    outcome.results.push_back(tensor(plan, given, id));
  }
  for (const trace::ExitGradient& gradient : plan.recording().exit_gradients) {
    outcome.gradients.push_back(tensor(plan, given, gradient.tensor));
  }
  return outcome;
}

at::Tensor OutcomeMemory::tensor(DevicePlan& plan, GivenGradients& given,
                                 trace::TensorId id) const {
  if (id == trace::kNoTensor) return {};
  const trace::Tensor& geometry = plan.recording().tensors[id];
  if (is_graphs(plan, geometry.buffer)) {
    const auto own = memory_.find(geometry.buffer);
    return own == memory_.end() ? given.give(geometry.buffer, plan.memory.tensor(id))
                                : tensor_on(own->second, geometry);
  }
  switch (plan.program.buffers[geometry.buffer].placement) {
    case Placement::kAdopted:
      return plan.memory.fresh_tensor(id);
    case Placement::kConstant:
      return plan.memory.copied_tensor(id);
    default:
      return {};
  }
}

}  // namespace steptape::replayer::cuda
