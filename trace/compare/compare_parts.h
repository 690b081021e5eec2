#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <concepts>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trace/compare/compare.h"
#include "trace/text/text.h"

/// The pieces of first_difference, each one respect in which two recordings may differ. A later one
/// may rely on the earlier having found nothing.
namespace steptape::trace {

inline std::string in_words(bool value) { return value ? "true" : "false"; }
inline std::string in_words(std::string_view value) { return std::string(value); }
inline std::string in_words(const std::string& value) { return value; }
inline std::string in_words(const Value& value) { return print_value(value); }
inline std::string in_words(TensorRef tensor) { return print_value(Value{tensor}); }
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

/// Compares things of two recordings one by one and keeps the first that differ. Each function
/// says whether they are the same, so that comparisons are joined by `&&`.
class Comparison {
 public:
  explicit Comparison(DifferenceKind kind) : kind_(kind) {}

  /// `path` and `words` name the thing, as fmt::format takes them.
  template <typename Thing, typename... Words>
  bool same(const Thing& a, const Thing& b, fmt::format_string<const Words&...> path,
            const Words&... words) {
    return a == b || differ(fmt::format(path, words...), in_words(a), in_words(b));
  }

  /// Two lists item by item, by `same_item(i, a[i], b[i])`, then their lengths: the first item that
  /// differs says more.
  template <typename List, typename SameItem>
  bool same_each(std::string_view name, const List& a, const List& b, SameItem&& same_item) {
    for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
      if (!same_item(i, a[i], b[i])) return false;
    }
    return same(a.size(), b.size(), "{}.size", name);
  }

  /// False.
  bool differ(std::string path, std::string expected, std::string found) {
    found_ = Difference{kind_, op_, std::move(path), std::move(expected), std::move(found)};
    return false;
  }

  /// What is compared from here on belongs to this op.
  void enter(Index op) { op_ = op; }
  const std::optional<Difference>& found() const { return found_; }

 private:
  DifferenceKind kind_;
  Index op_ = kNone;
  std::optional<Difference> found_;
};

bool same_op_stream(Comparison& compared, const Recording& a, const Recording& b);
bool same_geometry(Comparison& compared, const Recording& a, const Recording& b);
bool same_roles(Comparison& compared, const Recording& a, const Recording& b);
/// What ops gave the host, but for reads that `b` calls free.
bool same_host_reads(Comparison& compared, const Recording& a, const Recording& b);
/// Literals alone: numbers that `b` has a formula for may differ.
bool same_scalars(Comparison& compared, const Recording& a, const Recording& b);
/// Bytes of constants: those without a path were made by the host inside the step.
bool same_host_tensors(Comparison& compared, const Recording& a, const Recording& b);
bool same_outside_tensors(Comparison& compared, const Recording& a, const Recording& b);
bool same_hyperparameters(Comparison& compared, const Recording& a, const Recording& b);
bool same_tracked(Comparison& compared, const Recording& a, const Recording& b);
bool same_ambient(Comparison& compared, const Recording& a, const Recording& b);
bool same_effects(Comparison& compared, const Recording& a, const Recording& b);
bool same_seeks(Comparison& compared, const Recording& a, const Recording& b);

}  // namespace steptape::trace
