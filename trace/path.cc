#include "trace/path.h"

#include <fmt/format.h>

namespace steptape::trace {
namespace {

constexpr std::string_view kSpecial = ".@[]\"";

/// After the quoted name that starts at `start`; npos where it has no end.
std::size_t end_of_quotes(std::string_view text, std::size_t start) noexcept {
  for (std::size_t i = start + 1; i < text.size(); ++i) {
    if (text[i] == '\\') {
      ++i;
    } else if (text[i] == '"') {
      return i + 1;
    }
  }
  return std::string_view::npos;
}

/// After the bracket that opens at `start`; npos where none closes it.
std::size_t end_of_bracket(std::string_view text, std::size_t start) noexcept {
  std::size_t depth = 0;
  std::size_t i = start;
  while (i < text.size()) {
    if (text[i] == '"') {
      i = end_of_quotes(text, i);
      continue;
    }
    if (text[i] == '[') ++depth;
    if (text[i] == ']') --depth;
    ++i;
    if (depth == 0) return i;
  }
  return std::string_view::npos;
}

}  // namespace

std::string path_component(std::string_view name) {
  if (!name.empty() && name.find_first_of(kSpecial) == std::string_view::npos) {
    return std::string(name);
  }
  std::string quoted = "\"";
  for (const char c : name) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += c;
  }
  return quoted + '"';
}

std::string join_path(std::string_view parent, std::string_view name) {
  if (parent.empty()) return path_component(name);
  std::string path(parent);
  path += '.';
  path += path_component(name);
  return path;
}

std::string call_path(std::string_view module, std::uint32_t call) {
  return call <= 1 ? std::string(module) : fmt::format("{}@{}", module, call);
}

std::string outside_path(std::size_t position) { return fmt::format("outside[{}]", position); }

std::string unnamed_path(std::string_view optimizer, std::size_t number) {
  return fmt::format("{}.<unnamed {}>", optimizer, number);
}

bool is_outside_path(std::string_view path) noexcept {
  const std::string_view parent = parent_path(path);
  return path.starts_with("outside[") ||
         (!parent.empty() && path.substr(parent.size()).starts_with(".<unnamed "));
}

std::string_view parent_path(std::string_view path) noexcept {
  std::size_t last = 0;
  std::size_t i = 0;
  while (i < path.size()) {
    if (path[i] == '.') last = i;
    if (path[i] == '"') {
      i = end_of_quotes(path, i);
    } else if (path[i] == '[') {
      i = end_of_bracket(path, i);
    } else {
      ++i;
    }
  }
  return path.substr(0, last);
}

}  // namespace steptape::trace
