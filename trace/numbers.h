#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trace/model.h"

/// The host numbers of a recording by the paths that its leaves have.
namespace steptape::trace {

/// "optimizer.param_groups[0]"
std::string group_path(std::string_view optimizer, std::size_t group);
/// "optimizer.state[model.fc1.weight]"
std::string state_path(std::string_view optimizer, std::string_view parameter);
/// "ops[17]": what that op gives the host.
std::string read_path(Index op);

/// The element of a buffer that a site without an op is for.
struct Element {
  DType dtype;                       ///< that of the first tensor on the buffer
  std::size_t offset;                ///< in bytes
  std::span<const std::byte> bytes;  ///< empty where no content is kept
};
/// The elements of a recording's buffers; it must outlive this.
class Elements {
 public:
  explicit Elements(const Recording& recording);
  /// None where no tensor lies on the buffer, or the buffer ends before the element does.
  std::optional<Element> at(const ScalarSite& site) const noexcept;
  const Recording& recording() const { return recording_; }

 private:
  const Recording& recording_;
  std::vector<std::optional<DType>> dtypes_;  ///< by buffer
};

/// That of one buffer, whose first tensor has this dtype; `item`: that of the site.
std::optional<Element> element_at(const Buffer& buffer, DType dtype, Index item) noexcept;

/// Calls `visit(item)` for each element, by what a site has for it; for none where there are more
/// than `most`.
template <typename Visit>
void for_each_element(const Buffer& buffer, DType dtype, std::size_t most, Visit&& visit) {
  const std::size_t width = bytes_of(dtype);
  const std::size_t count = width == 0 ? 0 : buffer.bytes / width;
  if (count > most) return;
  for (Index i = 0; i < count; ++i) visit(count == 1 ? kNone : i);
}

/// Position in Recording::leaves, or kNone.
Index find_leaf(const Recording& recording, LeafKind kind, std::string_view path) noexcept;
/// The position of an input, or kNone.
Index find_input(const Recording& recording, std::string_view path) noexcept;
/// That of the first input that is a tensor on the buffer, or kNone.
Index input_on(const Recording& recording, BufferId buffer) noexcept;

/// The place that an input stands in, or null.
const HeldInput* place_of(const Recording& recording, Index input) noexcept;
/// What stands in such a place as the step begins; where nothing does, what it leaves there.
const Tensor& tensor_in(const Recording& recording, const HeldInput& place);
/// Of those that the step finds and that are carried on the first in the memory of this one: both
/// are views of it. Of one that it does not find, itself.
const HeldInput& first_in_memory_of(const Recording& recording, const HeldInput& place);
/// A trace's state keeps of what kind what stands in a place is: under "player.kinds[s.h]".
std::string path_of_kind(const std::string& place);
/// The place of such a path; "" of any other.
std::string place_of_kind(const std::string& path);
Saved saved_kind(const std::string& place, const std::string& kind);
/// Whether it can be carried on: what the step leaves is a tensor like the one that it has found,
/// or that one, and views of one memory are so again; none in memory that is tracked, or, when the
/// step begins, in that of another input. The positions must exist.
bool can_be_carried(const Recording& recording, const HeldInput& place);
/// Has those carried on alone of which `is_carried` says so, and which can be; and so the places in
/// which all are.
void carry_on(Recording& recording, const std::function<bool(const HeldInput&)>& is_carried);

/// Calls `visit(path, Value)` for `value`, or for each that lies in its lists: "betas[1]".
template <typename Visit>
void for_each_item(const std::string& path, const Value& value, Visit&& visit) {
  const auto* list = std::get_if<List>(&value.data);
  if (list == nullptr) return visit(path, value);
  for (std::size_t i = 0; i < list->size(); ++i) {
    for_each_item(path + "[" + std::to_string(i) + "]", (*list)[i], visit);
  }
}

/// The same for numbers alone.
template <typename Visit>
void for_each_number(const std::string& path, const Value& value, Visit&& visit) {
  for_each_item(path, value, [&visit](const std::string& item_path, const Value& item) {
    if (is_number(item)) visit(item_path, item);
  });
}

/// The same for each hyperparameter and each number in the state of an optimizer.
template <typename Visit>
void for_each_number(const OptimizerLayout& optimizer, Visit&& visit) {
  for (std::size_t g = 0; g < optimizer.groups.size(); ++g) {
    for (const NamedValue& named : optimizer.groups[g].hyperparameters) {
      for_each_number(group_path(optimizer.path, g) + "." + named.name, named.value, visit);
    }
  }
  for (const OptimizerStateEntry& entry : optimizer.state) {
    for_each_number(state_path(optimizer.path, entry.parameter) + "." + entry.key, entry.value,
                    visit);
  }
}

}  // namespace steptape::trace
