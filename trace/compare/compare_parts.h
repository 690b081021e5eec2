#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <concepts>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "trace/compare/compare.h"
#include "trace/text/text.h"

/// The pieces of first_difference, each one respect in which two recordings may differ. A later one
/// may rely on the earlier having found nothing.
namespace steptape::trace {

using Found = std::optional<Difference>;

Found differ_in_op_stream(const Recording& a, const Recording& b);
Found differ_in_geometry(const Recording& a, const Recording& b);
Found differ_in_roles(const Recording& a, const Recording& b);
/// What ops gave the host, but for reads that `b` calls free.
Found differ_in_host_reads(const Recording& a, const Recording& b);
/// Literals alone: numbers that `b` has a formula for may differ.
Found differ_in_scalars(const Recording& a, const Recording& b);
/// Bytes of constants: those without a path were made by the host inside the step.
Found differ_in_host_tensors(const Recording& a, const Recording& b);
Found differ_in_outside_tensors(const Recording& a, const Recording& b);
Found differ_in_hyperparameters(const Recording& a, const Recording& b);
Found differ_in_tracked(const Recording& a, const Recording& b);
Found differ_in_ambient(const Recording& a, const Recording& b);
Found differ_in_effects(const Recording& a, const Recording& b);
Found differ_in_seeks(const Recording& a, const Recording& b);

inline std::string in_words(bool value) { return value ? "true" : "false"; }
inline std::string in_words(std::string_view value) { return std::string(value); }
inline std::string in_words(const std::string& value) { return value; }
inline std::string in_words(const Value& value) { return print_value(value); }
inline std::string in_words(Role role) { return std::string(name_of(role)); }
inline std::string in_words(DType dtype) { return std::string(name_of(dtype)); }
inline std::string in_words(const Device& device) { return text_of(device); }
inline std::string in_words(const Digest& digest) { return text_of(digest); }
template <std::integral Integer>
std::string in_words(Integer value) {
  return std::to_string(value);
}
inline std::string in_words(const std::vector<Value>& values) {
  return values.size() == 1 ? print_value(values.front()) : fmt::format("{} values", values.size());
}
template <typename Item>
std::string in_words(const std::vector<Item>& values) {
  return fmt::format("[{}]", fmt::join(values, ", "));
}

/// Compares one thing; `path` is called for its words only when it differs.
template <typename Thing, typename Path>
Found differ(DifferenceKind kind, const Thing& a, const Thing& b, Path&& path, Index op = kNone) {
  if (a == b) return std::nullopt;
  return Difference{kind, op, path(), in_words(a), in_words(b)};
}

/// Compares two lists item by item, then their lengths: the first item that differs says more.
template <typename List, typename Compare>
Found differ_in_each(DifferenceKind kind, std::string_view name, const List& a, const List& b,
                     Compare&& compare) {
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    if (Found found = compare(i, a[i], b[i])) return found;
  }
  return differ(kind, a.size(), b.size(), [&] { return fmt::format("{}.size", name); });
}

}  // namespace steptape::trace
