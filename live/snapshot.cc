#include <c10/util/StringUtil.h>
#include <c10/util/Type.h>
#include <c10/util/flat_hash_map.h>

#include <string>
#include <typeinfo>

#include "live/objects.h"
#include "live/optimizer_layout.h"
#include "trace/numbers.h"
#include "trace/path.h"

namespace steptape::live {
namespace {

using torch::optim::Optimizer;

/// Modules that share modules have exponentially many paths, and a module that holds itself has no
/// end of them.
constexpr std::size_t kMostAliases = 16;

class SnapshotBuilder {
 public:
  Snapshot build(const Objects::Impl& objects) {
    for (const auto& module : objects.modules) add_module(module.name, *module.object);
    for (const auto& module : snapshot_.modules) add_parameters(module);
    const std::vector<ForeignAt> foreign = add_foreign_modules(objects);
    for (const auto& optimizer : objects.optimizers)
      add_parameters(optimizer.name, *optimizer.object);
    std::vector<std::vector<ForeignOptimizer::Group>> groups;
    for (const NamedForeign& object : objects.foreign) {
      if (object.optimizer == nullptr) continue;
      groups.push_back(object.optimizer->groups());
      for (std::size_t g = 0; g < groups.back().size(); ++g) {
        add_parameters(object.name, g, groups.back()[g].parameters);
      }
    }
    for (const auto& named : objects.tensors) {
      if (is_parameter(named.tensor)) add(named.name, trace::Role::kParameter, named.tensor);
    }
    const std::size_t parameters = snapshot_.tensors.size();
    // a parameter, its gradient, and the two moments that most optimizers keep
    snapshot_.tensors.reserve(4 * parameters);
    for (const auto& module : snapshot_.modules) {
      if (module.module != nullptr) add_buffers(module);
    }
    for (const auto& [at, module] : foreign) {
      add_own(snapshot_.modules[at], trace::Role::kModuleBuffer, module.buffers,
              module.transient_buffers);
    }
    for (const auto& optimizer : objects.optimizers) add_layout(optimizer.name, *optimizer.object);
    std::size_t next = 0;
    for (const NamedForeign& object : objects.foreign) {
      if (object.optimizer != nullptr) {
        add_layout(object.name, *object.optimizer, std::move(groups[next++]));
      }
    }
    for (const auto& named : objects.tensors) {
      if (!is_parameter(named.tensor)) add(named.name, trace::Role::kCarried, named.tensor);
    }
    const std::size_t others = snapshot_.tensors.size();
    for (std::size_t k = 0; k < parameters; ++k) add_gradient(k);
    // a module's buffer may have one, too, as those of vector-quantize-pytorch
    for (std::size_t k = parameters; k < others; ++k) {
      if (is_parameter(snapshot_.tensors[k].tensor)) add_gradient(k);
    }
    return std::move(snapshot_);
  }

 private:
  /// A foreign module and its position among all.
  using ForeignAt = std::pair<std::size_t, ForeignModule>;

  /// A tracked tensor that autograd gives a gradient, or that has one.
  static bool is_parameter(const at::Tensor& tensor) {
    return tensor.defined() && tensor.is_leaf() &&
           (tensor.requires_grad() || tensor.grad().defined());
  }

  void add_module(const std::string& path, const torch::nn::Module& module) {
    const auto [entry, is_new] = seen_.emplace(&module, snapshot_.modules.size());
    if (is_new) {
      snapshot_.modules.push_back({path, &module, {}, module.is_training()});
    } else {
      auto& aliases = snapshot_.modules[entry->second].aliases;
      if (aliases.size() == kMostAliases) return;
      aliases.push_back(path);
    }
    for (const auto& child : module.named_children()) {
      add_module(trace::join_path(path, child.key()), *child.value());
    }
  }

  std::vector<ForeignAt> add_foreign_modules(const Objects::Impl& objects) {
    std::vector<ForeignAt> foreign;
    for (const NamedForeign& object : objects.foreign) {
      if (object.modules == nullptr) continue;
      const auto below = [&object](const std::string& path) {
        return path.empty() ? object.name : object.name + "." + path;
      };
      for (ForeignModule& module : object.modules->modules()) {
        ModuleAt at{below(module.path), nullptr, module.type, module.training};
        for (const std::string& alias : module.aliases) at.aliases.push_back(below(alias));
        foreign.emplace_back(snapshot_.modules.size(), std::move(module));
        snapshot_.modules.push_back(std::move(at));
      }
    }
    for (const auto& [at, module] : foreign) {
      add_own(snapshot_.modules[at], trace::Role::kParameter, module.parameters);
    }
    return foreign;
  }

  /// Tensors of a module, by what stands after its path, under all of its paths.
  void add_own(const ModuleAt& module, trace::Role role,
               const std::vector<std::pair<std::string, at::Tensor>>& tensors,
               const std::vector<std::string>& transient = {}) {
    add_all(module.path, role, tensors, transient);
    for (const std::string& alias : module.aliases) add_all(alias, role, tensors, transient);
  }

  void add_parameters(const ModuleAt& module) {
    add_own(module, trace::Role::kParameter,
            components_of(module.module->named_parameters(/*recurse=*/false)));
  }

  void add_parameters(const std::string& path, const Optimizer& optimizer) {
    const auto& groups = optimizer.param_groups();
    for (std::size_t g = 0; g < groups.size(); ++g) add_parameters(path, g, groups[g].params());
  }

  void add_parameters(const std::string& path, std::size_t group,
                      const std::vector<at::Tensor>& tensors) {
    for (std::size_t k = 0; k < tensors.size(); ++k) {
      if (snapshot_.find(tensors[k]) >= 0) continue;
      add(c10::str(trace::group_path(path, group), ".params[", k, "]"), trace::Role::kParameter,
          tensors[k]);
    }
  }

  void add_all(const std::string& path, trace::Role role,
               const std::vector<std::pair<std::string, at::Tensor>>& tensors,
               const std::vector<std::string>& transient = {}) {
    for (const auto& [name, tensor] : tensors) {
      const bool is_transient = std::ranges::find(transient, name) != transient.end();
      add(path + "." + name, role, tensor, !is_transient);
    }
  }

  void add_buffers(const ModuleAt& module) {
    add_own(module, trace::Role::kModuleBuffer,
            components_of(module.module->named_buffers(/*recurse=*/false)));
  }

  static std::vector<std::pair<std::string, at::Tensor>> components_of(
      const torch::OrderedDict<std::string, at::Tensor>& items) {
    std::vector<std::pair<std::string, at::Tensor>> tensors;
    for (const auto& item : items) {
      tensors.emplace_back(trace::path_component(item.key()), item.value());
    }
    return tensors;
  }

  void add_layout(const std::string& path, const Optimizer& optimizer) {
    trace::OptimizerLayout layout{path, type_name(optimizer), false, {}, {}};
    for (const auto& group : optimizer.param_groups()) {
      trace::ParameterGroup& description = layout.groups.emplace_back();
      description.hyperparameters = hyperparameters_of(group);
      for (const at::Tensor& parameter : group.params()) {
        description.parameters.push_back(snapshot_.path_of(parameter));
        add_state(layout, description.parameters.back(), optimizer, parameter);
      }
    }
    snapshot_.optimizers.push_back(std::move(layout));
  }

  void add_layout(const std::string& path, const ForeignOptimizer& optimizer,
                  std::vector<ForeignOptimizer::Group> groups) {
    // where its numbers come from is known of each op that they enter
    trace::OptimizerLayout layout{path, optimizer.type(), /*has_formulas=*/true, {}, {}};
    for (std::size_t g = 0; g < groups.size(); ++g) {
      trace::ParameterGroup& description = layout.groups.emplace_back();
      description.hyperparameters = std::move(groups[g].hyperparameters);
      for (const at::Tensor& parameter : groups[g].parameters) {
        description.parameters.push_back(snapshot_.path_of(parameter));
      }
      add_all(trace::group_path(path, g), trace::Role::kOptimizerState, groups[g].tensors);
    }
    for (ForeignOptimizer::State& item : optimizer.state()) {
      layout.state.push_back({snapshot_.path_of(item.parameter), item.key, {}});
      add_item(layout, std::move(item.value));
    }
    snapshot_.optimizers.push_back(std::move(layout));
  }

  /// The value of the newest entry of a state.
  void add_item(trace::OptimizerLayout& layout, std::variant<at::Tensor, trace::Value> item) {
    trace::OptimizerStateEntry& entry = layout.state.back();
    if (const auto* state = std::get_if<at::Tensor>(&item)) {
      add(trace::state_path(layout.path, entry.parameter) + "." + entry.key,
          trace::Role::kOptimizerState, *state);
      entry.value = {trace::TensorRef{static_cast<trace::TensorId>(snapshot_.find(*state))}};
    } else {
      entry.value = std::get<trace::Value>(std::move(item));
    }
  }

  void add_state(trace::OptimizerLayout& layout, const std::string& parameter,
                 const Optimizer& optimizer, const at::Tensor& tensor) {
    const auto found = optimizer.state().find(tensor.unsafeGetTensorImpl());
    if (found == optimizer.state().end() || found->second == nullptr) return;
    for (StateItem& item : state_items(*found->second)) {
      layout.state.push_back({parameter, item.key, {}});
      if (const auto* state = std::get_if<at::Tensor>(&item.value)) {
        add_item(layout, *state);
      } else if (const auto* integer = std::get_if<std::int64_t>(&item.value)) {
        add_item(layout, trace::Value{*integer});
      } else {
        add_item(layout, trace::Value{trace::Real{std::get<double>(item.value)}});
      }
    }
  }

  void add_gradient(std::size_t parameter) {
    const at::Tensor tensor = snapshot_.tensors[parameter].tensor;
    snapshot_.tensors.push_back(
        {snapshot_.tensors[parameter].path + ".grad", trace::Role::kGradient, tensor.grad()});
    if (tensor.grad().defined()) index(snapshot_.tensors.size() - 1);
  }

  void add(std::string path, trace::Role role, const at::Tensor& tensor,
           bool in_state_dict = true) {
    if (!tensor.defined()) return;
    if (const std::int64_t known = snapshot_.find(tensor); known >= 0) {
      TensorAt& at = snapshot_.tensors[static_cast<std::size_t>(known)];
      if (at.path != path && at.aliases.size() < kMostAliases)
        at.aliases.push_back(std::move(path));
      at.in_state_dict |= in_state_dict;
      return;
    }
    snapshot_.tensors.push_back({std::move(path), role, tensor, {}, in_state_dict});
    index(snapshot_.tensors.size() - 1);
  }

  void index(std::size_t position) {
    const at::Tensor& tensor = snapshot_.tensors[position].tensor;
    snapshot_.positions.emplace(tensor.unsafeGetTensorImpl(), position);
  }

  Snapshot snapshot_;
  ska::flat_hash_map<const torch::nn::Module*, std::size_t> seen_;  ///< positions
};

}  // namespace

std::string ModuleAt::type() const {
  return module == nullptr ? foreign_type : c10::demangle(typeid(*module).name());
}

std::int64_t Snapshot::find(const at::Tensor& tensor) const {
  if (!tensor.defined()) return -1;
  const auto found = positions.find(tensor.unsafeGetTensorImpl());
  return found == positions.end() ? -1 : static_cast<std::int64_t>(found->second);
}

std::string Snapshot::path_of(const at::Tensor& tensor) const {
  const std::int64_t position = find(tensor);
  return position < 0 ? "" : tensors[static_cast<std::size_t>(position)].path;
}

Snapshot Objects::snapshot() const {
  check_alive();
  return SnapshotBuilder().build(*impl_);
}

}  // namespace steptape::live
