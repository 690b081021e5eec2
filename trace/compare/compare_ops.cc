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

/// Whether two arguments name the same tensors in the same places; their scalars may differ.
bool same_tensors(const Value& a, const Value& b) {
  if (!holds_tensor(a) && !holds_tensor(b)) return true;
  const auto* list_a = std::get_if<List>(&a.data);
  const auto* list_b = std::get_if<List>(&b.data);
  if (list_a && list_b) return std::ranges::equal(*list_a, *list_b, same_tensors);
  return a == b;
}

bool same_values(Comparison& compared, Index op, std::string_view name, const std::vector<Value>& a,
                 const std::vector<Value>& b) {
  return compared.same_each(fmt::format("ops[{}].{}", op, name), a, b,
                            [&](std::size_t i, const Value& x, const Value& y) {
                              return same_tensors(x, y) ||
                                     compared.same(x, y, "ops[{}].{}[{}]", op, name, i);
                            });
}

bool same_op(Comparison& compared, Index i, const Recording& a, const Recording& b) {
  const Op& x = a.ops[i];
  const Op& y = b.ops[i];
  compared.enter(i);
  if (a.operator_of(x) != b.operator_of(y))
    return compared.differ(fmt::format("ops[{}]", i), print_op(a, x), print_op(b, y));
  return same_values(compared, i, "inputs", x.inputs, y.inputs) &&
         same_values(compared, i, "outputs", x.outputs, y.outputs) &&
         compared.same(x.unannotated_writes, y.unannotated_writes, "ops[{}].unannotated_writes", i);
}

/// One stream is the head of the other: the first op that only one of them has.
bool same_length(Comparison& compared, const Recording& a, const Recording& b) {
  if (a.ops.size() == b.ops.size()) return true;
  const std::size_t end = std::min(a.ops.size(), b.ops.size());
  const auto words = [end](const Recording& recording) {
    return end < recording.ops.size() ? print_op(recording, recording.ops[end])
                                      : std::string("the end of the step");
  };
  compared.enter(static_cast<Index>(end));
  return compared.differ(fmt::format("ops[{}]", end), words(a), words(b));
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

bool same_argument(Comparison& compared, const Bound& bound, Index op, Index k, const Value& a,
                   const Value& b) {
  if (a == b || bound.holds(op, k, kNone)) return true;
  const auto* x = std::get_if<List>(&a.data);
  const auto* y = std::get_if<List>(&b.data);
  if (x == nullptr || y == nullptr || x->size() != y->size())
    return compared.same(a, b, "ops[{}].inputs[{}]", op, k);
  for (Index i = 0; i < x->size(); ++i) {
    if (bound.holds(op, k, i)) continue;
    if (!compared.same((*x)[i], (*y)[i], "ops[{}].inputs[{}][{}]", op, k, i)) return false;
  }
  return true;
}

bool same_arguments(Comparison& compared, const Bound& bound, Index i, const Op& a, const Op& b) {
  compared.enter(i);
  for (Index k = 0; k < a.inputs.size(); ++k) {
    if (!same_argument(compared, bound, i, k, a.inputs[k], b.inputs[k])) return false;
  }
  if (bound.is_read(i)) return true;
  for (Index k = 0; k < a.outputs.size(); ++k) {
    if (!compared.same(a.outputs[k], b.outputs[k], "ops[{}].outputs[{}]", i, k)) return false;
  }
  return true;
}

}  // namespace

bool same_op_stream(Comparison& compared, const Recording& a, const Recording& b) {
  for (std::size_t i = 0; i < std::min(a.ops.size(), b.ops.size()); ++i) {
    if (!same_op(compared, static_cast<Index>(i), a, b)) return false;
  }
  if (!same_length(compared, a, b)) return false;
  compared.enter(kNone);
  return compared.same_each("inputs", a.inputs, b.inputs,
                            [&](std::size_t i, const Input& x, const Input& y) {
                              return compared.same(x.path, y.path, "inputs[{}]", i) &&
                                     (same_tensors(x.value, y.value) ||
                                      compared.same(x.value, y.value, "inputs[{}]", i));
                            }) &&
         compared.same(a.results, b.results, "results");
}

bool same_host_reads(Comparison& compared, const Recording& a, const Recording& b) {
  if (!compared.same(a.reads.size(), b.reads.size(), "reads.size")) return false;
  for (const HostRead& read : b.reads) {
    if (read.use != ReadUse::kChecked) continue;
    compared.enter(read.op);
    if (!compared.same(a.ops[read.op].outputs, b.ops[read.op].outputs, "ops[{}].outputs[0]",
                       read.op))
      return false;
  }
  compared.enter(kNone);
  return compared.same_each("numbers", a.numbers, b.numbers,
                            [&](std::size_t i, const Number& x, const Number& y) {
                              return y.op != kNone || y.formula != kNone ||
                                     compared.same(x.value, y.value, "numbers[{}]", i);
                            });
}

bool same_scalars(Comparison& compared, const Recording& a, const Recording& b) {
  const Bound bound(b);
  for (Index i = 0; i < a.ops.size(); ++i) {
    if (!same_arguments(compared, bound, i, a.ops[i], b.ops[i])) return false;
  }
  compared.enter(kNone);
  return compared.same_each(
             "host_values", a.host_values, b.host_values,
             [&](std::size_t i, const NamedValue& x, const NamedValue& y) {
               return compared.same(x.name, y.name, "host_values[{}]", i) &&
                      (bound.holds(x.name) || compared.same(x.value, y.value, "{}", x.name));
             }) &&
         compared.same_each(
             "inputs", a.inputs, b.inputs, [&](std::size_t i, const Input& x, const Input& y) {
               return bound.holds(x.path) || compared.same(x.value, y.value, "inputs[{}]", i);
             });
}

bool same_seeks(Comparison& compared, const Recording& a, const Recording& b) {
  return compared.same_each(
      "seeks", a.seeks, b.seeks, [&](std::size_t i, const Seek& x, const Seek& y) {
        compared.enter(x.before_op);
        return compared.same(x.before_op, y.before_op, "seeks[{}].before_op", i) &&
               compared.same(x.generator, y.generator, "seeks[{}].generator", i) &&
               compared.same(x.is_earlier, y.is_earlier, "seeks[{}].is_earlier", i) &&
               (x.is_earlier ? compared.same(x.after_op, y.after_op, "seeks[{}].after_op", i)
                             : compared.same(x.state, y.state, "seeks[{}].state", i));
      });
}

namespace {

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

bool same_constants(Comparison& compared, const Recording& a, const Recording& b, bool host_made) {
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
    const std::string_view space = host_made ? "" : " ";
    if (!compared.same(bytes_in_words(x, elements), bytes_in_words(b.buffers[i], elements),
                       "buffers[{}]{}{}", i, space, x.path))
      return false;
  }
  return true;
}

}  // namespace

bool same_geometry(Comparison& compared, const Recording& a, const Recording& b) {
  const auto same_tensor = [&](std::size_t i, const Tensor& x, const Tensor& y) {
    return x == y ||
           (compared.same(x.buffer, y.buffer, "tensors[{}].buffer", i) &&
            compared.same(x.dtype, y.dtype, "tensors[{}].dtype", i) &&
            compared.same(x.sizes, y.sizes, "tensors[{}].sizes", i) &&
            compared.same(x.strides, y.strides, "tensors[{}].strides", i) &&
            compared.same(x.offset, y.offset, "tensors[{}].offset", i) &&
            compared.same(x.conj, y.conj, "tensors[{}].conj", i) &&
            compared.same(x.neg, y.neg, "tensors[{}].neg", i) &&
            compared.same(x.wrapped_number, y.wrapped_number, "tensors[{}].wrapped_number", i));
  };
  const auto same_buffer = [&](std::size_t i, const Buffer& x, const Buffer& y) {
    const bool is_input = x.role == Role::kInput || y.role == Role::kInput;
    return compared.same(x.bytes, y.bytes, "buffers[{}].bytes", i) &&
           compared.same(x.device, y.device, "buffers[{}].device", i) &&
           (is_input ||
            compared.same(x.address_mod_64, y.address_mod_64, "buffers[{}].address_mod_64", i));
  };
  return compared.same_each("tensors", a.tensors, b.tensors, same_tensor) &&
         compared.same(a.windows.size(), b.windows.size(), "windows.size") &&
         compared.same_each("buffers", a.buffers, b.buffers, same_buffer);
}

bool same_roles(Comparison& compared, const Recording& a, const Recording& b) {
  return compared.same_each("buffers", a.buffers, b.buffers,
                            [&](std::size_t i, const Buffer& x, const Buffer& y) {
                              return compared.same(x.role, y.role, "buffers[{}].role", i) &&
                                     compared.same(x.path, y.path, "buffers[{}].path", i);
                            });
}

bool same_host_tensors(Comparison& compared, const Recording& a, const Recording& b) {
  return same_constants(compared, a, b, true);
}

bool same_outside_tensors(Comparison& compared, const Recording& a, const Recording& b) {
  return same_constants(compared, a, b, false);
}

}  // namespace steptape::trace
