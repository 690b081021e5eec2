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
    const Tensor* input = recording.find_tensor(recording.inputs[i].value);
    if (input != nullptr && input->buffer == buffer) return i;
  }
  return kNone;
}

const HeldInput* place_of(const Recording& recording, Index input) noexcept {
  const auto found = std::ranges::find(recording.places, input, &HeldInput::input);
  return found == recording.places.end() ? nullptr : &*found;
}

const Tensor& tensor_in(const Recording& recording, const HeldInput& place) {
  if (place.input == kNone) return recording.tensors[recording.results[place.result]];
  return recording.tensors[std::get<TensorRef>(recording.inputs[place.input].value.data).id];
}

namespace {

constexpr std::string_view kKindOfPlace = "player.kinds[";

}  // namespace

std::string path_of_kind(const std::string& place) {
  return std::string(kKindOfPlace) + place + "]";
}

std::string place_of_kind(const std::string& path) {
  if (!path.starts_with(kKindOfPlace) || !path.ends_with("]")) return "";
  return path.substr(kKindOfPlace.size(), path.size() - kKindOfPlace.size() - 1);
}

Saved saved_kind(const std::string& place, const std::string& kind) {
  return {path_of_kind(place), 0, make_blob(kind.data(), kind.size())};
}

const HeldInput& first_in_memory_of(const Recording& recording, const HeldInput& place) {
  if (place.input == kNone) return place;
  const BufferId buffer = tensor_in(recording, place).buffer;
  return *std::ranges::find_if(recording.places, [&](const HeldInput& each) {
    return each.is_carried && each.input != kNone && tensor_in(recording, each).buffer == buffer;
  });
}

namespace {

/// What the step leaves in such a place, a tensor of its own or one that it was given.
const Tensor* left_in(const Recording& recording, const HeldInput& place) {
  if (place.result == kNone || recording.results[place.result] == kNoTensor) return nullptr;
  const Tensor& left = recording.tensors[recording.results[place.result]];
  const Role role = recording.buffers[left.buffer].role;
  const bool is_of_the_step =
      role == Role::kInput || role == Role::kResult || role == Role::kTemporary;
  return is_of_the_step ? &left : nullptr;
}

/// In a place that was empty, in memory of which nothing else stands in a place.
bool can_be_put(const Recording& recording, const HeldInput& place) {
  const Tensor* after = left_in(recording, place);
  return after != nullptr && std::ranges::none_of(recording.places, [&](const HeldInput& each) {
           if (&each == &place) return false;
           const Tensor* left = left_in(recording, each);
           const bool stays = each.input != kNone && each.result == kNone &&
                              tensor_in(recording, each).buffer == after->buffer;
           return stays || (left != nullptr && left->buffer == after->buffer);
         });
}

}  // namespace

bool can_be_carried(const Recording& recording, const HeldInput& place) {
  if (place.input == kNone) return can_be_put(recording, place);
  const Input& input = recording.inputs[place.input];
  const Tensor* found = recording.find_tensor(input.value);
  if (found == nullptr) return false;
  const Tensor& before = *found;
  const bool stays = place.result == kNone;
  if (!stays && left_in(recording, place) == nullptr) return false;
  const Tensor& after = stays ? before : *left_in(recording, place);
  Tensor moved = after;
  moved.buffer = before.buffer;
  moved.offset = before.offset;
  if (moved != before || input.may_have_grad() || !input.same_as.empty() ||
      recording.buffers[before.buffer].role != Role::kInput)
    return false;
  for (Index i = 0; i < recording.inputs.size(); ++i) {
    const Tensor* other = recording.find_tensor(recording.inputs[i].value);
    if (other == nullptr || other->buffer != before.buffer) continue;
    const HeldInput* of = place_of(recording, i);
    if (of == nullptr || !of->is_carried || (of->result == kNone) != stays) return false;
    if (stays) continue;
    if (recording.results[of->result] == kNoTensor) return false;
    // what were views of one memory are so again
    const Tensor& left = recording.tensors[recording.results[of->result]];
    if (left.buffer != after.buffer || left.offset - other->offset != after.offset - before.offset)
      return false;
  }
  return true;
}

void carry_on(Recording& recording, const std::function<bool(const HeldInput&)>& is_carried) {
  const auto lose = [&recording](HeldInput& place) {
    place.is_carried = false;
    if (place.place == kNone) return;
    HeldPlace::Rule& rule = recording.held[place.place].rule;
    if (rule == HeldPlace::Rule::kCarried) rule = HeldPlace::Rule::kLost;
  };
  for (HeldInput& place : recording.places) {
    if (!place.is_carried || !is_carried(place)) lose(place);
  }
  // without one of them another one may lie in memory that nobody carries on
  const auto cannot = [&recording](const HeldInput& place) {
    return place.is_carried && !can_be_carried(recording, place);
  };
  const auto is_lost = [&recording](const HeldInput& place) {
    return place.place != kNone && recording.held[place.place].rule != HeldPlace::Rule::kCarried;
  };
  while (true) {
    const auto found = std::ranges::find_if(recording.places, [&](const HeldInput& place) {
      return cannot(place) || (place.is_carried && is_lost(place));
    });
    if (found == recording.places.end()) return;
    lose(*found);
  }
}

}  // namespace steptape::trace
