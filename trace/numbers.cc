#include "trace/numbers.h"

#include <fmt/format.h>

#include <algorithm>

namespace steptape::trace {

std::string group_path(std::string_view optimizer, std::size_t group) {
  return fmt::format("{}.param_groups[{}]", optimizer, group);
}

std::string state_path(std::string_view optimizer, std::string_view parameter) {
  return fmt::format("{}.state[{}]", optimizer, parameter);
}

std::string read_path(Index op) { return fmt::format("ops[{}]", op); }

Elements::Elements(const Recording& recording)
    : recording_(recording), dtypes_(recording.buffers.size()) {
  for (const Tensor& tensor : recording.tensors) {
    if (!dtypes_[tensor.buffer]) dtypes_[tensor.buffer] = tensor.dtype;
  }
}

std::optional<Element> Elements::at(const ScalarSite& site) const noexcept {
  const std::optional<DType>& dtype = dtypes_[site.buffer];
  if (!dtype) return std::nullopt;
  return element_at(recording_.buffers[site.buffer], *dtype, site.item);
}

std::optional<Element> element_at(const Buffer& buffer, DType dtype, Index item) noexcept {
  const std::size_t width = bytes_of(dtype);
  Element element{dtype, item == kNone ? 0 : item * width, {}};
  if (element.offset + width > buffer.bytes) return std::nullopt;
  if (buffer.content && buffer.content->size() == buffer.bytes)
    element.bytes = std::span(*buffer.content).subspan(element.offset, width);
  return element;
}

Index find_leaf(const Recording& recording, LeafKind kind, std::string_view path) noexcept {
  const auto found = std::ranges::find_if(
      recording.leaves, [&](const Leaf& leaf) { return leaf.kind == kind && leaf.path == path; });
  return found == recording.leaves.end() ? kNone
                                         : static_cast<Index>(found - recording.leaves.begin());
}

Index find_input(const Recording& recording, std::string_view path) noexcept {
  const auto found = std::ranges::find(recording.inputs, path, &Input::path);
  return found == recording.inputs.end() ? kNone
                                         : static_cast<Index>(found - recording.inputs.begin());
}

Index input_on(const Recording& recording, BufferId buffer) noexcept {
  for (Index i = 0; i < recording.inputs.size(); ++i) {
    const auto* input = std::get_if<TensorRef>(&recording.inputs[i].value.data);
    if (input == nullptr || input->id == kNoTensor) continue;
    if (recording.tensors[input->id].buffer == buffer) return i;
  }
  return kNone;
}

const HeldInput* place_of(const Recording& recording, Index input) noexcept {
  const auto found = std::ranges::find(recording.places, input, &HeldInput::input);
  return found == recording.places.end() ? nullptr : &*found;
}

const Tensor& tensor_in(const Recording& recording, const HeldInput& place) {
  return recording.tensors[std::get<TensorRef>(recording.inputs[place.input].value.data).id];
}

const HeldInput& first_in_memory_of(const Recording& recording, const HeldInput& place) {
  const BufferId buffer = tensor_in(recording, place).buffer;
  return *std::ranges::find_if(recording.places, [&](const HeldInput& each) {
    return each.result != kNone && tensor_in(recording, each).buffer == buffer;
  });
}

bool can_be_carried(const Recording& recording, const HeldInput& place) {
  const Input& input = recording.inputs[place.input];
  const auto* found = std::get_if<TensorRef>(&input.value.data);
  const TensorId result = recording.results[place.result];
  if (found == nullptr || found->id == kNoTensor || result == kNoTensor) return false;
  const Tensor& before = recording.tensors[found->id];
  const Tensor& after = recording.tensors[result];
  Tensor moved = after;
  moved.buffer = before.buffer;
  moved.offset = before.offset;
  const Role role = recording.buffers[after.buffer].role;
  const bool is_of_the_step =
      role == Role::kInput || role == Role::kResult || role == Role::kTemporary;
  if (moved != before || !is_of_the_step || input.may_have_grad() || !input.same_as.empty() ||
      recording.buffers[before.buffer].role != Role::kInput)
    return false;
  for (Index i = 0; i < recording.inputs.size(); ++i) {
    const auto* tensor = std::get_if<TensorRef>(&recording.inputs[i].value.data);
    if (tensor == nullptr || tensor->id == kNoTensor) continue;
    const Tensor& other = recording.tensors[tensor->id];
    if (other.buffer != before.buffer) continue;
    const HeldInput* of = place_of(recording, i);
    if (of == nullptr || of->result == kNone || recording.results[of->result] == kNoTensor)
      return false;
    // what were views of one memory are so again
    const Tensor& left = recording.tensors[recording.results[of->result]];
    if (left.buffer != after.buffer || left.offset - other.offset != after.offset - before.offset)
      return false;
  }
  return true;
}

void carry_on(Recording& recording, const std::function<bool(const HeldInput&)>& is_carried) {
  for (HeldInput& place : recording.places) {
    if (!is_carried(place)) place.result = kNone;
  }
  // without one of them another one may lie in memory that nobody carries on
  const auto cannot = [&recording](const HeldInput& place) {
    return place.result != kNone && !can_be_carried(recording, place);
  };
  while (true) {
    const auto found = std::ranges::find_if(recording.places, cannot);
    if (found == recording.places.end()) return;
    found->result = kNone;
  }
}

}  // namespace steptape::trace
