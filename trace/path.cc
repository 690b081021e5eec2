#include "trace/path.h"

#include <fmt/format.h>

#include <charconv>

#include "steptape/error.h"

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

std::string without_quotes(std::string_view quoted) {
  std::string name;
  for (std::size_t i = 1; i + 1 < quoted.size(); ++i) {
    if (quoted[i] == '\\') ++i;
    name += quoted[i];
  }
  return name;
}

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Path parse() {
    Path path;
    do {
      PathComponent& component = path.components.emplace_back();
      component.name = take_name();
      while (next_is('[')) component.brackets.push_back(take_bracket());
    } while (accept('.'));
    if (accept('@')) path.call = take_call();
    if (at_ != text_.size()) fail("the end of the path");
    return path;
  }

 private:
  bool next_is(char c) const { return at_ < text_.size() && text_[at_] == c; }
  bool accept(char c) {
    if (!next_is(c)) return false;
    ++at_;
    return true;
  }

  std::string take_name() {
    const std::size_t start = at_;
    if (next_is('"')) {
      at_ = end_of_quotes(text_, start);
      if (at_ == std::string_view::npos) fail_at(start, "a closing quote");
      return without_quotes(text_.substr(start, at_ - start));
    }
    at_ = std::min(text_.find_first_of(kSpecial, start), text_.size());
    if (at_ == start) fail("a name");
    return std::string(text_.substr(start, at_ - start));
  }

  std::string take_bracket() {
    const std::size_t start = at_;
    at_ = end_of_bracket(text_, start);
    if (at_ == std::string_view::npos) fail_at(start, "a closing bracket");
    const std::string_view inside = text_.substr(start + 1, at_ - start - 2);
    Parser(inside).parse();
    return std::string(inside);
  }

  std::uint32_t take_call() {
    std::uint32_t call = 0;
    const char* end = text_.data() + text_.size();
    const auto [stop, error] = std::from_chars(text_.data() + at_, end, call);
    if (error != std::errc() || call == 0) fail("the number of a call");
    at_ = static_cast<std::size_t>(stop - text_.data());
    return call;
  }

  [[noreturn]] void fail(std::string_view expected) const { fail_at(at_, expected); }
  [[noreturn]] void fail_at(std::size_t position, std::string_view expected) const {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("path `{}`, column {}: expected {}", text_, position + 1, expected));
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

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

Path parse_path(std::string_view text) { return Parser(text).parse(); }

std::string text_of(const Path& path) {
  std::string text;
  for (const PathComponent& component : path.components) {
    text = join_path(text, component.name);
    for (const std::string& inside : component.brackets) text += "[" + inside + "]";
  }
  return call_path(text, path.call);
}

}  // namespace steptape::trace
