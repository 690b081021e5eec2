#pragma once

#include <cstdint>
#include <string>
#include <string_view>

/// How paths of objects are written: components with "." between them, each with what stands in
/// brackets after it, and at the end of a module's path the number of its call:
///
///     model.fc1@2    model."a.b".weight    optimizer.state[model."a.b".weight].exp_avg
///
/// A name that is empty or holds `.`, `@`, `[`, `]` or `"` stands in double quotes, where `"` and
/// `\` have a `\` before them.
namespace steptape::trace {

/// `name` as it stands in a path.
std::string path_component(std::string_view name);

/// "model" and "fc1" make "model.fc1"; an empty `parent` makes the component alone.
std::string join_path(std::string_view parent, std::string_view name);

/// "model.fc1" for the first call of a module, "model.fc1@2" for its second.
std::string call_path(std::string_view module, std::uint32_t call);

/// The path without its last component: "model" for "model.fc1", "" for "model".
std::string_view parent_path(std::string_view path) noexcept;

/// "outside[0]": a tensor that the step reads and no path leads to.
std::string outside_path(std::size_t position);
/// "optimizer.<unnamed 1>": such a tensor that updates by this optimizer alone read, counted
/// from 1.
std::string unnamed_path(std::string_view optimizer, std::size_t number);
/// Whether it is one of these two.
bool is_outside_path(std::string_view path) noexcept;

}  // namespace steptape::trace
