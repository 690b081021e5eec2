#include <algorithm>

#include "trace/compare_parts.h"

namespace steptape::trace {
namespace {

bool holds_tensor(const Value& value) {
  bool holds = false;
  for_each_tensor(value, [&holds](TensorId) { holds = true; });
  return holds;
}

/// Whether two arguments name the same tensors in the same places; their scalars may differ.
bool same_tensors(const Value& a, const Value& b) {
  if (!holds_tensor(a) && !holds_tensor(b)) return true;
  const auto* list_a = std::get_if<List>(&a.data);
  const auto* list_b = std::get_if<List>(&b.data);
  if (list_a && list_b) return std::ranges::equal(*list_a, *list_b, same_tensors);
  return a == b;
}

Found differ_in_values(std::string_view name, Index op, const std::vector<Value>& a,
                       const std::vector<Value>& b) {
  auto path = [&](std::size_t i) { return fmt::format("ops[{}].{}[{}]", op, name, i); };
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    if (same_tensors(a[i], b[i])) continue;
    return Difference{DifferenceKind::kOpStream, op, path(i), print_value(a[i]), print_value(b[i])};
  }
  return differ(
      DifferenceKind::kOpStream, a.size(), b.size(),
      [&] { return fmt::format("ops[{}].{}.size", op, name); }, op);
}

Found differ_in_op(Index i, const Recording& a, const Recording& b) {
  const Op& x = a.ops[i];
  const Op& y = b.ops[i];
  if (a.operator_of(x) != b.operator_of(y)) {
    return Difference{DifferenceKind::kOpStream, i, fmt::format("ops[{}]", i), print_op(a, x),
                      print_op(b, y)};
  }
  if (Found found = differ_in_values("inputs", i, x.inputs, y.inputs)) return found;
  if (Found found = differ_in_values("outputs", i, x.outputs, y.outputs)) return found;
  return differ(
      DifferenceKind::kOpStream, x.unannotated_writes, y.unannotated_writes,
      [&] { return fmt::format("ops[{}].unannotated_writes", i); }, i);
}

/// One stream is the head of the other: the first op that only one of them has.
Found differ_in_length(const Recording& a, const Recording& b) {
  if (a.ops.size() == b.ops.size()) return std::nullopt;
  const std::size_t end = std::min(a.ops.size(), b.ops.size());
  auto words = [end](const Recording& recording) {
    return end < recording.ops.size() ? print_op(recording, recording.ops[end])
                                      : std::string("the end of the step");
  };
  return Difference{DifferenceKind::kOpStream, static_cast<Index>(end), fmt::format("ops[{}]", end),
                    words(a), words(b)};
}

Found differ_in_op_scalars(Index i, std::string_view name, const std::vector<Value>& a,
                           const std::vector<Value>& b) {
  for (std::size_t k = 0; k < a.size(); ++k) {
    Found found = differ(
        DifferenceKind::kScalar, a[k], b[k],
        [&] { return fmt::format("ops[{}].{}[{}]", i, name, k); }, i);
    if (found) return found;
  }
  return std::nullopt;
}

}  // namespace

Found differ_in_op_stream(const Recording& a, const Recording& b) {
  for (std::size_t i = 0; i < std::min(a.ops.size(), b.ops.size()); ++i) {
    if (Found found = differ_in_op(static_cast<Index>(i), a, b)) return found;
  }
  if (Found found = differ_in_length(a, b)) return found;
  constexpr auto kKind = DifferenceKind::kOpStream;
  Found found = differ_in_each(
      kKind, "inputs", a.inputs, b.inputs, [](std::size_t i, const Input& x, const Input& y) {
        auto path = [i] { return fmt::format("inputs[{}]", i); };
        if (Found other = differ(kKind, x.path, y.path, path)) return other;
        return same_tensors(x.value, y.value) ? Found() : differ(kKind, x.value, y.value, path);
      });
  if (found) return found;
  return differ(kKind, a.results, b.results, [] { return std::string("results"); });
}

Found differ_in_scalars(const Recording& a, const Recording& b) {
  for (std::size_t i = 0; i < a.ops.size(); ++i) {
    const auto op = static_cast<Index>(i);
    const Op& x = a.ops[i];
    const Op& y = b.ops[i];
    if (Found found = differ_in_op_scalars(op, "inputs", x.inputs, y.inputs)) return found;
    if (Found found = differ_in_op_scalars(op, "outputs", x.outputs, y.outputs)) return found;
  }
  return differ_in_each(DifferenceKind::kScalar, "inputs", a.inputs, b.inputs,
                        [](std::size_t i, const Input& x, const Input& y) {
                          return differ(DifferenceKind::kScalar, x.value, y.value,
                                        [i] { return fmt::format("inputs[{}]", i); });
                        });
}

Found differ_in_seeks(const Recording& a, const Recording& b) {
  constexpr auto kKind = DifferenceKind::kSeek;
  return differ_in_each(
      kKind, "seeks", a.seeks, b.seeks, [](std::size_t i, const Seek& x, const Seek& y) -> Found {
        auto path = [i](std::string_view what) { return fmt::format("seeks[{}].{}", i, what); };
        const Index op = x.before_op;
        if (auto found = differ(
                kKind, x.before_op, y.before_op, [&] { return path("before_op"); }, op)) {
          return found;
        }
        if (auto found = differ(
                kKind, x.generator, y.generator, [&] { return path("generator"); }, op)) {
          return found;
        }
        return differ(
            kKind, x.state, y.state, [&] { return path("state"); }, op);
      });
}

}  // namespace steptape::trace
