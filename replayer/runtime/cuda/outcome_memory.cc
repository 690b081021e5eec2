#include "replayer/runtime/cuda/outcome_memory.h"

#include <ATen/ops/_foreach_copy.h>
#include <c10/core/Allocator.h>

#include <optional>
#include <utility>

#include "live/device_bytes.h"
#include "replayer/runtime/tensor_on.h"

namespace steptape::replayer::cuda {
namespace {

/// In memory that each run writes again.
bool is_graphs(const DevicePlan& plan, trace::BufferId buffer) {
  const Placement placement = plan.program.buffers[buffer].placement;
  return placement == Placement::kCaptured || placement == Placement::kLanding;
}

/// The buffer of what the user gets of the graphs' memory.
std::optional<trace::BufferId> graphs_buffer(const DevicePlan& plan, trace::TensorId id) {
  if (id == trace::kNoTensor) return std::nullopt;
  const trace::BufferId buffer = plan.recording().tensors[id].buffer;
  return is_graphs(plan, buffer) ? std::optional(buffer) : std::nullopt;
}

/// Whether a copy of its elements is one of all bytes of its buffer.
bool is_whole(const at::Tensor& tensor) {
  return tensor.nbytes() == tensor.storage().nbytes() && tensor.is_non_overlapping_and_dense() &&
         !tensor.is_conj() && !tensor.is_neg();
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
  const auto buffer = graphs_buffer(plan, id);
  if (!buffer || memory_.contains(*buffer)) return;
  memory_[*buffer].storage =
      c10::Storage(c10::Storage::use_byte_size_t(), plan.recording().buffers[*buffer].bytes,
                   c10::GetAllocator(device_.type()), /*resizable=*/true);
}

Outcome OutcomeMemory::outcome(DevicePlan& plan, GivenGradients& given, const void* owner) {
  Outcome outcome;
  for (const trace::TensorId id : plan.recording().results) {
    outcome.results.push_back(tensor(plan, id));
  }
  for (const trace::ExitGradient& gradient : plan.recording().exit_gradients) {
    const auto buffer = graphs_buffer(plan, gradient.tensor);
    const bool is_given = buffer && !memory_.contains(*buffer);
    outcome.gradients.push_back(
        is_given ? given.give(owner, *buffer, plan.memory.tensor(gradient.tensor))
                 : tensor(plan, gradient.tensor));
  }
  const live::Unseen unseen;
  for (auto& [dtype, copies] : std::exchange(copies_, {})) {
    at::_foreach_copy_(copies.to, copies.from);
  }
  return outcome;
}

at::Tensor OutcomeMemory::tensor(DevicePlan& plan, trace::TensorId id) {
  if (id == trace::kNoTensor) return {};
  const trace::Tensor& geometry = plan.recording().tensors[id];
  if (const auto buffer = graphs_buffer(plan, id)) {
    Memory& own = memory_.at(*buffer);
    at::Tensor made = tensor_on(own.storage, geometry);
    if (own.storage.nbytes() == 0 || std::exchange(own.is_filled, true)) return made;
    if (is_whole(made)) {
      Copies& copies = copies_[made.scalar_type()];
      copies.from.push_back(plan.memory.tensor(id));
      copies.to.push_back(made);
    } else {
      live::copy_bytes(own.storage.mutable_data(), device_, plan.memory.address(*buffer), device_,
                       own.storage.nbytes());
    }
    return made;
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
