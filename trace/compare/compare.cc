#include "trace/compare/compare.h"

#include <algorithm>
#include <array>

#include "trace/compare/compare_parts.h"
#include "trace/numbers.h"

namespace steptape::trace {
namespace {

Found differ_in_group(const std::string& path, bool has_formulas, const ParameterGroup& a,
                      const ParameterGroup& b) {
  constexpr auto kKind = DifferenceKind::kHyperparameter;
  Found found = differ_in_each(
      kKind, path + ".hyperparameters", a.hyperparameters, b.hyperparameters,
      [&path, has_formulas](std::size_t i, const NamedValue& x, const NamedValue& y) {
        Found name = differ(kKind, x.name, y.name,
                            [&] { return fmt::format("{}.hyperparameters[{}]", path, i); });
        if (name || has_formulas) return name;
        return differ(kKind, x.value, y.value, [&] { return fmt::format("{}.{}", path, x.name); });
      });
  if (found) return found;
  return differ(kKind, a.parameters, b.parameters, [&path] { return path + ".parameters"; });
}

/// Host numbers of the state, such as a step count, move from step to step and are left out.
Found differ_in_state(const std::string& optimizer, std::size_t i, const OptimizerStateEntry& a,
                      const OptimizerStateEntry& b) {
  constexpr auto kKind = DifferenceKind::kHyperparameter;
  auto path = [&] { return fmt::format("{}.state[{}].{}", optimizer, a.parameter, a.key); };
  auto place = [&] { return fmt::format("{}.state[{}]", optimizer, i); };
  if (Found found = differ(kKind, a.parameter, b.parameter, place)) return found;
  if (Found found = differ(kKind, a.key, b.key, place)) return found;
  if (a.value.data.index() == b.value.data.index() &&
      !std::holds_alternative<TensorRef>(a.value.data)) {
    return std::nullopt;
  }
  return differ(kKind, a.value, b.value, path);
}

Found differ_in_optimizer(std::size_t i, const OptimizerLayout& a, const OptimizerLayout& b) {
  constexpr auto kKind = DifferenceKind::kHyperparameter;
  auto place = [i] { return fmt::format("optimizers[{}]", i); };
  if (Found found = differ(kKind, a.path, b.path, place)) return found;
  if (Found found = differ(kKind, a.type, b.type, [&a] { return a.path + ".type"; })) return found;
  const bool has_formulas = a.has_formulas && b.has_formulas;
  Found found =
      differ_in_each(kKind, a.path + ".param_groups", a.groups, b.groups,
                     [&](std::size_t k, const ParameterGroup& x, const ParameterGroup& y) {
                       return differ_in_group(group_path(a.path, k), has_formulas, x, y);
                     });
  if (found) return found;
  return differ_in_each(
      kKind, a.path + ".state", a.state, b.state,
      [&a](std::size_t k, const OptimizerStateEntry& x, const OptimizerStateEntry& y) {
        return differ_in_state(a.path, k, x, y);
      });
}

Found differ_in_tracked_tensor(std::size_t i, const Tracked& a, const Tracked& b) {
  constexpr auto kKind = DifferenceKind::kTracked;
  auto path = [&a](std::string_view what) {
    return [&a, what] { return fmt::format("tracked[{}]{}", a.path, what); };
  };
  if (auto found = differ(kKind, a.path, b.path, [i] { return fmt::format("tracked[{}]", i); })) {
    return found;
  }
  if (auto found = differ(kKind, a.role, b.role, path(".role"))) return found;
  if (auto found =
          differ(kKind, Value{TensorRef{a.tensor}}, Value{TensorRef{b.tensor}}, path(""))) {
    return found;
  }
  if (auto found = differ(kKind, a.requires_grad, b.requires_grad, path(".requires_grad"))) {
    return found;
  }
  return differ(kKind, a.aliases, b.aliases, path(".aliases"));
}

Found differ_in_exit_gradient(std::size_t i, const ExitGradient& a, const ExitGradient& b) {
  constexpr auto kKind = DifferenceKind::kTracked;
  auto place = [i] { return fmt::format("exit_gradients[{}]", i); };
  if (Found found = differ(kKind, a.path(), b.path(), place)) return found;
  return differ(kKind, Value{TensorRef{a.tensor}}, Value{TensorRef{b.tensor}},
                [&a] { return fmt::format("exit_gradients[{}]", a.parameter); });
}

Found differ_in_module(std::size_t i, const Module& a, const Module& b) {
  constexpr auto kKind = DifferenceKind::kTracked;
  auto place = [i] { return fmt::format("modules[{}]", i); };
  if (Found found = differ(kKind, a.path, b.path, place)) return found;
  auto path = [&a](std::string_view what) {
    return [&a, what] { return fmt::format("modules[{}].{}", a.path, what); };
  };
  if (Found found = differ(kKind, a.type, b.type, path("type"))) return found;
  if (Found found = differ(kKind, a.training, b.training, path("training"))) return found;
  Found option = differ_in_each(kKind, path("options")(), a.options, b.options,
                                [&](std::size_t k, const NamedValue& x, const NamedValue& y) {
                                  if (Found name = differ(kKind, x.name, y.name, [&] {
                                        return fmt::format("modules[{}].options[{}]", a.path, k);
                                      })) {
                                    return name;
                                  }
                                  return differ(kKind, x.value, y.value, path(x.name));
                                });
  if (option) return option;
  return differ(kKind, a.aliases, b.aliases, path("aliases"));
}

Found differ_in_fact(std::size_t i, const NamedValue& a, const NamedValue& b) {
  constexpr auto kKind = DifferenceKind::kTracked;
  if (auto found = differ(kKind, a.name, b.name, [i] { return fmt::format("facts[{}]", i); })) {
    return found;
  }
  return differ(kKind, a.value, b.value, [&a] { return a.name; });
}

Found differ_in_update(std::size_t i, const std::string& a, const std::string& b) {
  return differ(DifferenceKind::kTracked, a, b, [i] { return fmt::format("updates[{}]", i); });
}

Found differ_in_effect(std::size_t i, const Effect& a, const Effect& b) {
  constexpr auto kKind = DifferenceKind::kEffect;
  if (auto found = differ(kKind, a.name, b.name, [i] { return fmt::format("effects[{}]", i); })) {
    return found;
  }
  if (auto found = differ(kKind, a.value, b.value, [&a] { return a.name; })) return found;
  return differ(kKind, a.place, b.place, [&a] { return a.name + ".place"; });
}

Found differ_in_input_flags(std::size_t, const Input& a, const Input& b) {
  if (Found found = differ(DifferenceKind::kTracked, a.same_as, b.same_as,
                           [&a] { return a.path + " (the tensor that it is)"; })) {
    return found;
  }
  if (Found found = differ(DifferenceKind::kTracked, a.requires_grad, b.requires_grad,
                           [&a] { return a.path + ".requires_grad"; })) {
    return found;
  }
  return differ(DifferenceKind::kTracked, a.changes_requires_grad, b.changes_requires_grad,
                [&a] { return a.path + ".requires_grad after the step"; });
}

}  // namespace

Found differ_in_hyperparameters(const Recording& a, const Recording& b) {
  return differ_in_each(DifferenceKind::kHyperparameter, "optimizers", a.optimizers, b.optimizers,
                        differ_in_optimizer);
}

Found differ_in_tracked(const Recording& a, const Recording& b) {
  constexpr auto kKind = DifferenceKind::kTracked;
  if (auto found =
          differ_in_each(kKind, "tracked", a.tracked, b.tracked, differ_in_tracked_tensor)) {
    return found;
  }
  if (auto found = differ_in_each(kKind, "exit_gradients", a.exit_gradients, b.exit_gradients,
                                  differ_in_exit_gradient)) {
    return found;
  }
  if (auto found = differ_in_each(kKind, "modules", a.modules, b.modules, differ_in_module)) {
    return found;
  }
  if (auto found = differ_in_each(kKind, "facts", a.facts, b.facts, differ_in_fact)) return found;
  if (auto found = differ_in_each(kKind, "updates", a.updates, b.updates, differ_in_update)) {
    return found;
  }
  return differ_in_each(kKind, "inputs", a.inputs, b.inputs, differ_in_input_flags);
}

Found differ_in_effects(const Recording& a, const Recording& b) {
  return differ_in_each(DifferenceKind::kEffect, "effects", a.effects, b.effects, differ_in_effect);
}

Found differ_in_ambient(const Recording& a, const Recording& b) {
  constexpr auto kKind = DifferenceKind::kAmbient;
  return differ_in_each(
      kKind, "ambient", a.ambient, b.ambient, [](std::size_t i, const Fact& x, const Fact& y) {
        if (Found found =
                differ(kKind, x.name, y.name, [i] { return fmt::format("ambient[{}]", i); })) {
          return found;
        }
        return differ(kKind, x.value, y.value, [&x] { return fmt::format("ambient[{}]", x.name); });
      });
}

bool same_op_stream(const Recording& a, const Recording& b) {
  return !differ_in_op_stream(a, b) && !differ_in_roles(a, b) && a.updates == b.updates;
}

std::optional<Difference> first_difference(const Recording& a, const Recording& b) {
  constexpr std::array kRespects = {
      differ_in_effects,      differ_in_op_stream,       differ_in_geometry,
      differ_in_roles,        differ_in_host_reads,      differ_in_scalars,
      differ_in_host_tensors, differ_in_outside_tensors, differ_in_hyperparameters,
      differ_in_tracked,      differ_in_ambient,         differ_in_seeks,
  };
  for (const auto respect : kRespects) {
    if (Found found = respect(a, b)) return found;
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
