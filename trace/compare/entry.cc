#include "trace/compare/entry.h"

#include <algorithm>

namespace steptape::trace {
namespace {

bool same_geometry(const Recording& a, TensorId x, const Recording& b, TensorId y) {
  if (x == kNoTensor || y == kNoTensor) return x == y;
  const Tensor& s = a.tensors[x];
  const Tensor& t = b.tensors[y];
  return s.dtype == t.dtype && s.sizes == t.sizes && s.strides == t.strides && s.conj == t.conj &&
         s.neg == t.neg;
}

bool same_input(const Recording& a, const Input& x, const Recording& b, const Input& y,
                Numbers numbers) {
  if (x.requires_grad != y.requires_grad || x.same_as != y.same_as) return false;
  const auto* s = std::get_if<TensorRef>(&x.value.data);
  const auto* t = std::get_if<TensorRef>(&y.value.data);
  if (s != nullptr && t != nullptr) return same_geometry(a, s->id, b, t->id);
  return x.value == y.value ||
         (numbers == Numbers::kAny && is_number(x.value) && is_number(y.value));
}

bool same_tracked(const Recording& a, const Tracked& x, const Recording& b, const Tracked& y) {
  return x.path == y.path && x.role == y.role && x.requires_grad == y.requires_grad &&
         same_geometry(a, x.tensor, b, y.tensor);
}

bool same_group(const ParameterGroup& a, const ParameterGroup& b) {
  return a.parameters == b.parameters;
}

bool same_layout(const OptimizerLayout& a, const OptimizerLayout& b) {
  if (a.path != b.path || a.type != b.type || a.has_formulas != b.has_formulas) return false;
  return a.has_formulas ? std::ranges::equal(a.groups, b.groups, same_group) : a.groups == b.groups;
}

bool same_host_value(const NamedValue& a, const NamedValue& b, Numbers numbers) {
  return a.name == b.name && (numbers == Numbers::kAny || a.value == b.value);
}

}  // namespace

bool same_entry(const Recording& a, const Recording& b, Numbers numbers) {
  const auto inputs = [&](const Input& x, const Input& y) {
    return same_input(a, x, b, y, numbers);
  };
  const auto tracked = [&](const Tracked& x, const Tracked& y) { return same_tracked(a, x, b, y); };
  const auto host_values = [&](const NamedValue& x, const NamedValue& y) {
    return same_host_value(x, y, numbers);
  };
  return std::ranges::equal(a.inputs, b.inputs, inputs) &&
         std::ranges::equal(a.tracked, b.tracked, tracked) && a.modules == b.modules &&
         a.ambient == b.ambient && a.facts == b.facts && a.predicates == b.predicates &&
         std::ranges::equal(a.host_values, b.host_values, host_values) &&
         std::ranges::equal(a.optimizers, b.optimizers, same_layout);
}

}  // namespace steptape::trace
