#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <span>
#include <vector>

#include "trace/compare/compare_parts.h"
#include "trace/numbers.h"

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

/// Where `recording` has a formula instead of a literal.
class Bound {
 public:
  explicit Bound(const Recording& recording) {
    for (const ScalarSite& site : recording.scalars) {
      if (site.op != kNone) sites_.insert({site.op, site.argument, site.item});
    }
    for (const Leaf& leaf : recording.leaves) names_.insert(leaf.path);
    for (const HostRead& read : recording.reads) reads_.insert(read.op);
  }
  bool holds(Index op, Index argument, Index item) const {
    return sites_.contains({op, argument, item});
  }
  bool holds(const std::string& name) const { return names_.contains(name); }
  bool is_read(Index op) const { return reads_.contains(op); }

 private:
  std::set<std::array<Index, 3>> sites_;
  std::set<std::string_view> names_;
  std::set<Index> reads_;
};

Found differ_in_argument(const Bound& bound, Index op, Index k, const Value& a, const Value& b) {
  if (a == b || bound.holds(op, k, kNone)) return std::nullopt;
  const auto path = [&] { return fmt::format("ops[{}].inputs[{}]", op, k); };
  const auto* x = std::get_if<List>(&a.data);
  const auto* y = std::get_if<List>(&b.data);
  if (x == nullptr || y == nullptr || x->size() != y->size()) {
    return differ(DifferenceKind::kScalar, a, b, path, op);
  }
  for (Index i = 0; i < x->size(); ++i) {
    if ((*x)[i] == (*y)[i] || bound.holds(op, k, i)) continue;
    return differ(
        DifferenceKind::kScalar, (*x)[i], (*y)[i],
        [&] { return fmt::format("ops[{}].inputs[{}][{}]", op, k, i); }, op);
  }
  return std::nullopt;
}

Found differ_in_arguments(const Bound& bound, Index i, const Op& a, const Op& b) {
  for (std::size_t k = 0; k < a.inputs.size(); ++k) {
    const auto argument = static_cast<Index>(k);
    if (Found found = differ_in_argument(bound, i, argument, a.inputs[k], b.inputs[k])) {
      return found;
    }
  }
  if (bound.is_read(i)) return std::nullopt;
  for (std::size_t k = 0; k < a.outputs.size(); ++k) {
    Found found = differ(
        DifferenceKind::kScalar, a.outputs[k], b.outputs[k],
        [&] { return fmt::format("ops[{}].outputs[{}]", i, k); }, i);
    if (found) return found;
  }
  return std::nullopt;
}

Found differ_in_host_value(const Bound& bound, std::size_t i, const NamedValue& a,
                           const NamedValue& b) {
  constexpr auto kKind = DifferenceKind::kScalar;
  const auto place = [i] { return fmt::format("host_values[{}]", i); };
  if (Found found = differ(kKind, a.name, b.name, place)) return found;
  if (bound.holds(a.name)) return std::nullopt;
  return differ(kKind, a.value, b.value, [&a] { return a.name; });
}

Found differ_in_number(std::size_t i, const Number& a, const Number& b) {
  constexpr auto kKind = DifferenceKind::kHostRead;
  if (b.op != kNone || b.formula != kNone) return std::nullopt;
  return differ(kKind, a.value, b.value, [i] { return fmt::format("numbers[{}]", i); });
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

Found differ_in_host_reads(const Recording& a, const Recording& b) {
  constexpr auto kKind = DifferenceKind::kHostRead;
  if (Found found =
          differ(kKind, a.reads.size(), b.reads.size(), [] { return std::string("reads.size"); })) {
    return found;
  }
  for (const HostRead& read : b.reads) {
    if (read.use != ReadUse::kChecked) continue;
    Found found = differ(
        kKind, a.ops[read.op].outputs, b.ops[read.op].outputs,
        [&] { return fmt::format("ops[{}].outputs[0]", read.op); }, read.op);
    if (found) return found;
  }
  return differ_in_each(kKind, "numbers", a.numbers, b.numbers, differ_in_number);
}

Found differ_in_scalars(const Recording& a, const Recording& b) {
  const Bound bound(b);
  for (std::size_t i = 0; i < a.ops.size(); ++i) {
    if (Found found = differ_in_arguments(bound, static_cast<Index>(i), a.ops[i], b.ops[i])) {
      return found;
    }
  }
  Found found = differ_in_each(DifferenceKind::kScalar, "host_values", a.host_values, b.host_values,
                               [&](std::size_t i, const NamedValue& x, const NamedValue& y) {
                                 return differ_in_host_value(bound, i, x, y);
                               });
  if (found) return found;
  return differ_in_each(DifferenceKind::kScalar, "inputs", a.inputs, b.inputs,
                        [&](std::size_t i, const Input& x, const Input& y) {
                          if (bound.holds(x.path)) return Found();
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
        if (auto found = differ(
                kKind, Value{x.is_earlier}, Value{y.is_earlier}, [&] { return path("is_earlier"); },
                op)) {
          return found;
        }
        if (x.is_earlier) {
          return differ(
              kKind, x.after_op, y.after_op, [&] { return path("after_op"); }, op);
        }
        return differ(
            kKind, x.state, y.state, [&] { return path("state"); }, op);
      });
}

namespace {

Found differ_in_buffer_geometry(std::size_t i, const Buffer& a, const Buffer& b) {
  constexpr auto kKind = DifferenceKind::kGeometry;
  auto path = [i](std::string_view what) { return fmt::format("buffers[{}].{}", i, what); };
  if (auto found = differ(kKind, a.bytes, b.bytes, [&] { return path("bytes"); })) return found;
  if (auto found = differ(kKind, a.device, b.device, [&] { return path("device"); })) return found;
  if (a.role == Role::kInput || b.role == Role::kInput) return std::nullopt;
  return differ(kKind, static_cast<unsigned>(a.address_mod_64),
                static_cast<unsigned>(b.address_mod_64), [&] { return path("address_mod_64"); });
}

Found differ_in_tensor(std::size_t i, const Tensor& a, const Tensor& b) {
  if (a == b) return std::nullopt;
  constexpr auto kKind = DifferenceKind::kGeometry;
  auto path = [i](std::string_view what) {
    return [i, what] { return fmt::format("tensors[{}].{}", i, what); };
  };
  if (auto found = differ(kKind, a.buffer, b.buffer, path("buffer"))) return found;
  if (auto found = differ(kKind, a.dtype, b.dtype, path("dtype"))) return found;
  if (auto found = differ(kKind, a.sizes, b.sizes, path("sizes"))) return found;
  if (auto found = differ(kKind, a.strides, b.strides, path("strides"))) return found;
  if (auto found = differ(kKind, a.offset, b.offset, path("offset"))) return found;
  if (auto found = differ(kKind, a.conj, b.conj, path("conj"))) return found;
  if (auto found = differ(kKind, a.neg, b.neg, path("neg"))) return found;
  return differ(kKind, a.wrapped_number, b.wrapped_number, path("wrapped_number"));
}

/// Digest where one was taken, else of the content that was kept. Of a buffer with elements that a
/// formula gives, of all others.
std::string bytes_in_words(const Buffer& buffer, std::span<const Element> bound) {
  if (!bound.empty() && buffer.content) {
    std::vector<std::byte> others = *buffer.content;
    for (const Element& element : bound) {
      if (element.offset + element.bytes.size() > others.size()) continue;
      std::ranges::fill(std::span(others).subspan(element.offset, element.bytes.size()),
                        std::byte{});
    }
    return text_of(digest_of(others));
  }
  if (buffer.digest) return text_of(*buffer.digest);
  return buffer.content ? text_of(digest_of(*buffer.content)) : std::string("no digest");
}

Found differ_in_constants(DifferenceKind kind, const Recording& a, const Recording& b) {
  const bool host_made = kind == DifferenceKind::kHostTensor;
  const Elements elements_of_b(b);
  std::map<BufferId, std::vector<Element>> bound;
  for (const ScalarSite& site : b.scalars) {
    if (site.op != kNone) continue;
    if (const auto element = elements_of_b.at(site)) bound[site.buffer].push_back(*element);
  }
  for (std::size_t i = 0; i < a.buffers.size(); ++i) {
    const Buffer& x = a.buffers[i];
    if (x.role != Role::kConstant || x.path.empty() != host_made) continue;
    const std::vector<Element>& elements = bound[static_cast<BufferId>(i)];
    const Buffer& y = b.buffers[i];
    Found found = differ(kind, bytes_in_words(x, elements), bytes_in_words(y, elements), [&] {
      return host_made ? fmt::format("buffers[{}]", i) : fmt::format("buffers[{}] {}", i, x.path);
    });
    if (found) return found;
  }
  return std::nullopt;
}

}  // namespace

Found differ_in_geometry(const Recording& a, const Recording& b) {
  constexpr auto kKind = DifferenceKind::kGeometry;
  if (Found found = differ_in_each(kKind, "tensors", a.tensors, b.tensors, differ_in_tensor)) {
    return found;
  }
  if (Found found =
          differ(kKind, a.windows.size(), b.windows.size(), [] { return "windows.size"; }))
    return found;
  return differ_in_each(kKind, "buffers", a.buffers, b.buffers, differ_in_buffer_geometry);
}

Found differ_in_roles(const Recording& a, const Recording& b) {
  constexpr auto kKind = DifferenceKind::kRole;
  return differ_in_each(
      kKind, "buffers", a.buffers, b.buffers, [](std::size_t i, const Buffer& x, const Buffer& y) {
        Found found =
            differ(kKind, x.role, y.role, [i] { return fmt::format("buffers[{}].role", i); });
        if (found) return found;
        return differ(kKind, x.path, y.path, [i] { return fmt::format("buffers[{}].path", i); });
      });
}

Found differ_in_host_tensors(const Recording& a, const Recording& b) {
  return differ_in_constants(DifferenceKind::kHostTensor, a, b);
}

Found differ_in_outside_tensors(const Recording& a, const Recording& b) {
  return differ_in_constants(DifferenceKind::kOutsideTensor, a, b);
}

}  // namespace steptape::trace
