#include "trace/schema.h"

#include <algorithm>

namespace steptape::trace {
namespace {

/// The text up to the first of `ends` that stands outside of brackets and strings.
std::string_view head_of(std::string_view text, std::string_view ends) {
  int depth = 0;
  char quote = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quote != 0) {
      if (c == quote) quote = 0;
      continue;
    }
    if (depth == 0 && ends.find(c) != std::string_view::npos) return text.substr(0, i);
    if (c == '"' || c == '\'') quote = c;
    if (c == '(' || c == '[') ++depth;
    if (c == ')' || c == ']') --depth;
  }
  return text;
}

std::string_view trimmed(std::string_view text) {
  while (text.starts_with(' ')) text.remove_prefix(1);
  while (text.ends_with(' ')) text.remove_suffix(1);
  return text;
}

}  // namespace

std::vector<SchemaArgument> arguments_of(std::string_view schema) {
  std::vector<SchemaArgument> arguments;
  schema.remove_prefix(std::min(schema.find('('), schema.size()));
  if (schema.empty()) return arguments;
  schema.remove_prefix(1);
  bool by_keyword = false;
  while (true) {
    const std::string_view item = head_of(schema, ",)");
    const std::string_view declared = trimmed(head_of(item, "="));
    if (declared == "*") {
      by_keyword = true;
    } else if (!declared.empty()) {
      const std::size_t space = declared.rfind(' ');
      const bool is_written = declared.find('!') != std::string_view::npos;
      const bool has_type = space != std::string_view::npos;
      arguments.push_back(
          {declared.substr(has_type ? space + 1 : 0), is_written, is_written && by_keyword,
           has_type ? trimmed(declared.substr(0, space)) : std::string_view(), by_keyword});
    }
    schema.remove_prefix(item.size());
    if (!schema.starts_with(',')) return arguments;
    schema.remove_prefix(1);
  }
}

}  // namespace steptape::trace
