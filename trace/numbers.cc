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

}  // namespace steptape::trace
