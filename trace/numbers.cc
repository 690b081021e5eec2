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

}  // namespace steptape::trace
