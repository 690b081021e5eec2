#include <fmt/format.h>

#include <algorithm>

#include "trace/compare/guard_list_parts.h"
#include "trace/op_use.h"
#include "trace/path.h"
#include "trace/text/text.h"

namespace steptape::trace {
namespace {

std::string on_or_off(bool value) { return value ? "on" : "off"; }

void add_geometry(GuardList& list, const Recording& recording, const Tensor& tensor) {
  list.add(GuardKind::kTensorKind, "", "a plain tensor");
  list.add(GuardKind::kDevice, ".device", text_of(recording.buffers[tensor.buffer].device));
  list.add(GuardKind::kDtype, ".dtype", std::string(name_of(tensor.dtype)));
  list.add(GuardKind::kShape, ".dim", std::to_string(tensor.sizes.size()));
  for (std::size_t d = 0; d < tensor.sizes.size(); ++d) {
    list.add(GuardKind::kShape, fmt::format(".size({})", d), std::to_string(tensor.sizes[d]));
  }
  for (std::size_t d = 0; d < tensor.strides.size(); ++d) {
    list.add(GuardKind::kStride, fmt::format(".stride({})", d), std::to_string(tensor.strides[d]));
  }
  list.add(GuardKind::kTensorFlags, ".is_conj", on_or_off(tensor.conj));
  list.add(GuardKind::kTensorFlags, ".is_neg", on_or_off(tensor.neg));
  list.add(GuardKind::kTensorFlags, ".is_wrapped_number", on_or_off(tensor.wrapped_number));
}

void add_alignment(GuardList& list, const Buffer& buffer) {
  if (buffer.bytes == 0) return;
  list.add(GuardKind::kAlignment, ".data_ptr modulo 64", std::to_string(buffer.address_mod_64));
}

/// Marks the buffer as met, and says whether a tensor before was in its memory.
bool was_met(const Recording& recording, BufferId buffer, Met& met) {
  const bool before = met[buffer];
  met[buffer] = true;
  return before && recording.buffers[buffer].bytes != 0;
}

bool inference_mode_is_on(const Recording& recording) {
  const auto mode = std::ranges::find(recording.ambient, "inference_mode", &Fact::name);
  return mode != recording.ambient.end() && mode->value == "on";
}

void add_input(GuardList& list, const Recording& recording, const Input& input,
               const Tensor& tensor, Met& met) {
  const Buffer& buffer = recording.buffers[tensor.buffer];
  list.add(GuardKind::kPresence, "", "a tensor");
  if (!input.same_as.empty()) list.add(GuardKind::kArgument, "", "the tensor " + input.same_as);
  add_geometry(list, recording, tensor);
  list.add(GuardKind::kRequiresGrad, ".requires_grad", words_of(input.requires_grad));
  if (input.requires_grad) list.add(GuardKind::kPresence, ".grad", "None");
  if (!inference_mode_is_on(recording)) {
    list.add(GuardKind::kInference, ".is_inference", "false");
  }
  if (was_met(recording, tensor.buffer, met)) {
    list.add(GuardKind::kMemory, ".data_ptr", "within the memory of " + buffer.path);
  }
  add_alignment(list, buffer);
}

/// Buffers that were there before the step, of those that it uses.
std::vector<bool> given_buffers(const Recording& recording) {
  std::vector<bool> given(recording.buffers.size(), false);
  std::vector<bool> seen(recording.buffers.size(), false);
  const auto see = [&](TensorId id, bool is_given) {
    if (id == kNoTensor) return;
    const BufferId buffer = recording.tensors[id].buffer;
    if (!seen[buffer]) given[buffer] = is_given;
    seen[buffer] = true;
  };
  const auto see_all = [&](const Value& value, bool is_given) {
    for_each_tensor(value, [&](TensorId id) { see(id, is_given); });
  };
  for (const Input& input : recording.inputs) see_all(input.value, true);
  for (const Tracked& tracked : recording.tracked) see(tracked.tensor, true);
  for (const Op& op : recording.ops) {
    for (const Value& value : op.inputs) see_all(value, true);
    for (const Value& value : op.outputs) see_all(value, false);
  }
  for (const TensorId result : recording.results) see(result, true);
  return given;
}

std::vector<bool> written_buffers(const Recording& recording) {
  std::vector<bool> written(recording.buffers.size(), false);
  for (const OpUse& use : uses_of(recording)) {
    for (const TensorId id : use.writes) written[recording.tensors[id].buffer] = true;
  }
  return written;
}

void add_outside(GuardList& list, const Recording& recording, const std::vector<bool>& given) {
  for (BufferId id = 0; id < recording.buffers.size(); ++id) {
    const Buffer& buffer = recording.buffers[id];
    if (!given[id] || !is_outside_path(buffer.path)) continue;
    list.begin(buffer.path);
    list.add(GuardKind::kAlive, "", "alive");
    list.add(GuardKind::kMemory, ".storage().nbytes", std::to_string(buffer.bytes));
    add_alignment(list, buffer);
  }
}

void add_overlap(GuardList& list, const Recording& recording, const std::vector<bool>& given) {
  const std::vector<bool> written = written_buffers(recording);
  const auto is_written = [&](BufferId id) { return given[id] && written[id]; };
  std::size_t others = 0;
  for (BufferId id = 0; id < recording.buffers.size(); ++id) others += is_written(id) ? 1 : 0;
  for (BufferId id = 0; id < recording.buffers.size(); ++id) {
    const Buffer& buffer = recording.buffers[id];
    if (buffer.role != Role::kInput || !given[id]) continue;
    if (others == (is_written(id) ? 1 : 0)) continue;
    list.begin(buffer.path);
    list.add(GuardKind::kOverlap, "", "memory of its own");
  }
}

}  // namespace

void add_tracked(GuardList& list, const Recording& recording, Met& met) {
  for (const Tracked& tracked : recording.tracked) {
    list.begin(tracked.path, tracked.aliases);
    const bool is_gradient = tracked.role == Role::kGradient;
    const bool is_there = tracked.tensor != kNoTensor;
    if (is_gradient) list.add(GuardKind::kPresence, "", is_there ? "defined" : "None");
    if (!is_gradient) list.add(GuardKind::kAlive, "", "alive");
    if (!is_there) continue;
    const Tensor& tensor = recording.tensors[tracked.tensor];
    const Buffer& buffer = recording.buffers[tensor.buffer];
    add_geometry(list, recording, tensor);
    list.add(GuardKind::kOffset, ".storage_offset", std::to_string(tensor.offset));
    list.add(GuardKind::kRequiresGrad, ".requires_grad", words_of(tracked.requires_grad));
    list.add(GuardKind::kHooks, " (hooks)", "those of the recording");
    list.add(GuardKind::kMemory, ".storage().nbytes", std::to_string(buffer.bytes));
    add_alignment(list, buffer);
    if (was_met(recording, tensor.buffer, met)) {
      list.add(GuardKind::kMemory, "", "in one memory with " + buffer.path);
    }
  }
}

void add_inputs(GuardList& list, const Recording& recording, Met& met) {
  list.begin("inputs");
  list.add(GuardKind::kArgumentCount, ".size", std::to_string(recording.inputs.size()));
  for (const Input& input : recording.inputs) {
    const auto* tensor = std::get_if<TensorRef>(&input.value.data);
    if (tensor == nullptr) continue;
    list.begin(input.path);
    if (tensor->id == kNoTensor) {
      list.add(GuardKind::kPresence, "", "undefined");
    } else {
      add_input(list, recording, input, recording.tensors[tensor->id], met);
    }
  }
  add_number_inputs(list, recording);
}

void add_memory(GuardList& list, const Recording& recording) {
  const std::vector<bool> given = given_buffers(recording);
  add_outside(list, recording, given);
  add_overlap(list, recording, given);
}

}  // namespace steptape::trace
