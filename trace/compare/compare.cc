#include "trace/compare/compare.h"

#include <algorithm>
#include <array>

#include "trace/compare/compare_parts.h"
#include "trace/numbers.h"

namespace steptape::trace {
namespace {

bool same_group(Comparison& compared, const ParameterGroup& a, const ParameterGroup& b,
                const std::string& path, bool has_formulas) {
  return compared.same_each(
             path + ".hyperparameters", a.hyperparameters, b.hyperparameters,
             [&](std::size_t i, const NamedValue& x, const NamedValue& y) {
               return compared.same(x.name, y.name, "{}.hyperparameters[{}]", path, i) &&
                      (has_formulas || compared.same(x.value, y.value, "{}.{}", path, x.name));
             }) &&
         compared.same(a.parameters, b.parameters, "{}.parameters", path);
}

/// Host numbers of the state, such as a step count, move from step to step and are left out.
bool same_state(Comparison& compared, const std::string& optimizer, std::size_t i,
                const OptimizerStateEntry& a, const OptimizerStateEntry& b) {
  const bool are_numbers = a.value.data.index() == b.value.data.index() &&
                           !std::holds_alternative<TensorRef>(a.value.data);
  return compared.same(a.parameter, b.parameter, "{}.state[{}]", optimizer, i) &&
         compared.same(a.key, b.key, "{}.state[{}]", optimizer, i) &&
         (are_numbers ||
          compared.same(a.value, b.value, "{}.state[{}].{}", optimizer, a.parameter, a.key));
}

bool same_optimizer(Comparison& compared, std::size_t i, const OptimizerLayout& a,
                    const OptimizerLayout& b) {
  const bool has_formulas = a.has_formulas && b.has_formulas;
  return compared.same(a.path, b.path, "optimizers[{}]", i) &&
         compared.same(a.type, b.type, "{}.type", a.path) &&
         compared.same_each(a.path + ".param_groups", a.groups, b.groups,
                            [&](std::size_t k, const ParameterGroup& x, const ParameterGroup& y) {
                              return same_group(compared, x, y, group_path(a.path, k),
                                                has_formulas);
                            }) &&
         compared.same_each(
             a.path + ".state", a.state, b.state,
             [&](std::size_t k, const OptimizerStateEntry& x, const OptimizerStateEntry& y) {
               return same_state(compared, a.path, k, x, y);
             });
}

bool same_module(Comparison& compared, std::size_t i, const Module& a, const Module& b) {
  return compared.same(a.path, b.path, "modules[{}]", i) &&
         compared.same(a.type, b.type, "modules[{}].type", a.path) &&
         compared.same(a.training, b.training, "modules[{}].training", a.path) &&
         compared.same_each(
             fmt::format("modules[{}].options", a.path), a.options, b.options,
             [&](std::size_t k, const NamedValue& x, const NamedValue& y) {
               return compared.same(x.name, y.name, "modules[{}].options[{}]", a.path, k) &&
                      compared.same(x.value, y.value, "modules[{}].{}", a.path, x.name);
             }) &&
         compared.same(a.aliases, b.aliases, "modules[{}].aliases", a.path);
}

}  // namespace

bool same_hyperparameters(Comparison& compared, const Recording& a, const Recording& b) {
  return compared.same_each("optimizers", a.optimizers, b.optimizers,
                            [&](std::size_t i, const OptimizerLayout& x, const OptimizerLayout& y) {
                              return same_optimizer(compared, i, x, y);
                            });
}

bool same_tracked(Comparison& compared, const Recording& a, const Recording& b) {
  // not its aliases: more of them are found as the program takes other branches
  const auto same_tensor = [&](std::size_t i, const Tracked& x, const Tracked& y) {
    return compared.same(x.path, y.path, "tracked[{}]", i) &&
           compared.same(x.role, y.role, "tracked[{}].role", x.path) &&
           compared.same(TensorRef{x.tensor}, TensorRef{y.tensor}, "tracked[{}]", x.path) &&
           compared.same(x.requires_grad, y.requires_grad, "tracked[{}].requires_grad", x.path);
  };
  const auto same_gradient = [&](std::size_t i, const ExitGradient& x, const ExitGradient& y) {
    return compared.same(x.path(), y.path(), "exit_gradients[{}]", i) &&
           compared.same(TensorRef{x.tensor}, TensorRef{y.tensor}, "exit_gradients[{}]",
                         x.parameter);
  };
  const auto same_fact = [&](std::size_t i, const NamedValue& x, const NamedValue& y) {
    return compared.same(x.name, y.name, "facts[{}]", i) &&
           compared.same(x.value, y.value, "{}", x.name);
  };
  const auto same_flags = [&](std::size_t, const Input& x, const Input& y) {
    return compared.same(x.same_as, y.same_as, "{} (the tensor that it is)", x.path) &&
           compared.same(x.requires_grad, y.requires_grad, "{}.requires_grad", x.path) &&
           compared.same(x.changes_requires_grad, y.changes_requires_grad,
                         "{}.requires_grad after the step", x.path);
  };
  return compared.same_each("tracked", a.tracked, b.tracked, same_tensor) &&
         compared.same_each("exit_gradients", a.exit_gradients, b.exit_gradients, same_gradient) &&
         compared.same_each("modules", a.modules, b.modules,
                            [&](std::size_t i, const Module& x, const Module& y) {
                              return same_module(compared, i, x, y);
                            }) &&
         compared.same_each("facts", a.facts, b.facts, same_fact) &&
         compared.same_each("updates", a.updates, b.updates,
                            [&](std::size_t i, const std::string& x, const std::string& y) {
                              return compared.same(x, y, "updates[{}]", i);
                            }) &&
         compared.same_each("inputs", a.inputs, b.inputs, same_flags);
}

bool same_effects(Comparison& compared, const Recording& a, const Recording& b) {
  return compared.same_each("effects", a.effects, b.effects,
                            [&](std::size_t i, const Effect& x, const Effect& y) {
                              return compared.same(x.name, y.name, "effects[{}]", i) &&
                                     compared.same(x.value, y.value, "{}", x.name) &&
                                     compared.same(x.place, y.place, "{}.place", x.name);
                            });
}

bool same_ambient(Comparison& compared, const Recording& a, const Recording& b) {
  return compared.same_each("ambient", a.ambient, b.ambient,
                            [&](std::size_t i, const Fact& x, const Fact& y) {
                              return compared.same(x.name, y.name, "ambient[{}]", i) &&
                                     compared.same(x.value, y.value, "ambient[{}]", x.name);
                            });
}

bool same_op_stream(const Recording& a, const Recording& b) {
  Comparison ops(DifferenceKind::kOpStream);
  Comparison roles(DifferenceKind::kRole);
  return same_op_stream(ops, a, b) && same_roles(roles, a, b) && a.updates == b.updates;
}

std::optional<Difference> first_difference(const Recording& a, const Recording& b) {
  struct Respect {
    DifferenceKind kind;
    bool (*same)(Comparison&, const Recording&, const Recording&);
  };
  constexpr std::array kRespects = {
      Respect{DifferenceKind::kEffect, same_effects},
      Respect{DifferenceKind::kOpStream, same_op_stream},
      Respect{DifferenceKind::kGeometry, same_geometry},
      Respect{DifferenceKind::kRole, same_roles},
      Respect{DifferenceKind::kHostRead, same_host_reads},
      Respect{DifferenceKind::kScalar, same_scalars},
      Respect{DifferenceKind::kHostTensor, same_host_tensors},
      Respect{DifferenceKind::kOutsideTensor, same_outside_tensors},
      Respect{DifferenceKind::kHyperparameter, same_hyperparameters},
      Respect{DifferenceKind::kTracked, same_tracked},
      Respect{DifferenceKind::kAmbient, same_ambient},
      Respect{DifferenceKind::kSeek, same_seeks},
  };
  for (const Respect& respect : kRespects) {
    Comparison compared(respect.kind);
    if (!respect.same(compared, a, b)) return compared.found();
  }
  return std::nullopt;
}

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

bool same_layout(const OptimizerLayout& a, const OptimizerLayout& b) {
  if (a.path != b.path || a.type != b.type || a.has_formulas != b.has_formulas) return false;
  if (!a.has_formulas) return a.groups == b.groups;
  return std::ranges::equal(a.groups, b.groups, {}, &ParameterGroup::parameters,
                            &ParameterGroup::parameters);
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
