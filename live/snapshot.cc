#include <c10/util/StringUtil.h>
#include <c10/util/flat_hash_map.h>

#include <string>

#include "live/objects.h"
#include "live/optimizer_layout.h"
#include "live/tracked_objects.h"

namespace steptape::live {
namespace {

using torch::optim::Optimizer;

class SnapshotBuilder {
 public:
  Snapshot build(const Objects::Impl& objects) {
    for (const auto& module : objects.modules) add_module(module.name, *module.object);
    for (const auto& module : snapshot_.modules) add_parameters(module);
    for (const auto& optimizer : objects.optimizers)
      add_parameters(optimizer.name, *optimizer.object);
    const std::size_t parameters = snapshot_.tensors.size();
    // a parameter, its gradient, and the two moments that most optimizers keep
    snapshot_.tensors.reserve(4 * parameters);
    for (const auto& module : snapshot_.modules) add_buffers(module);
    for (const auto& optimizer : objects.optimizers) add_layout(optimizer.name, *optimizer.object);
    for (const auto& named : objects.tensors) add(named.name, trace::Role::kCarried, named.tensor);
    for (std::size_t k = 0; k < parameters; ++k) add_gradient(k);
    return std::move(snapshot_);
  }

 private:
  void add_module(const std::string& path, const torch::nn::Module& module) {
    if (!seen_.insert(&module).second) return;
    snapshot_.modules.push_back({path, &module});
    for (const auto& child : module.named_children()) {
      add_module(path + "." + child.key(), *child.value());
    }
  }

  void add_parameters(const ModuleAt& module) {
    for (const auto& item : module.module->named_parameters(/*recurse=*/false)) {
      add(module.path + "." + item.key(), trace::Role::kParameter, item.value());
    }
  }

  void add_parameters(const std::string& path, const Optimizer& optimizer) {
    const auto& groups = optimizer.param_groups();
    for (std::size_t g = 0; g < groups.size(); ++g) {
      const auto& tensors = groups[g].params();
      for (std::size_t k = 0; k < tensors.size(); ++k) {
        if (snapshot_.find(tensors[k]) >= 0) continue;
        add(c10::str(path, ".param_groups[", g, "].params[", k, "]"), trace::Role::kParameter,
            tensors[k]);
      }
    }
  }

  void add_buffers(const ModuleAt& module) {
    for (const auto& item : module.module->named_buffers(/*recurse=*/false)) {
      add(module.path + "." + item.key(), trace::Role::kModuleBuffer, item.value());
    }
  }

  void add_layout(const std::string& path, const Optimizer& optimizer) {
    trace::OptimizerLayout layout{path, type_name(optimizer), false, {}, {}};
    for (const auto& group : optimizer.param_groups()) {
      trace::ParameterGroup& description = layout.groups.emplace_back();
      description.hyperparameters = hyperparameters_of(group, layout.type);
      for (const at::Tensor& parameter : group.params()) {
        const auto position = snapshot_.find(parameter);
        description.parameters.push_back(position < 0 ? std::string()
                                                      : snapshot_.tensors[position].path);
        add_state(layout, description.parameters.back(), optimizer, parameter);
      }
    }
    snapshot_.optimizers.push_back(std::move(layout));
  }

  void add_state(trace::OptimizerLayout& layout, const std::string& parameter,
                 const Optimizer& optimizer, const at::Tensor& tensor) {
    const auto found = optimizer.state().find(tensor.unsafeGetTensorImpl());
    if (found == optimizer.state().end() || found->second == nullptr) return;
    for (StateItem& item : state_items(*found->second)) {
      layout.state.push_back({parameter, item.key, {}});
      trace::Value& value = layout.state.back().value;
      if (const auto* state = std::get_if<at::Tensor>(&item.value)) {
        add(layout.path + ".state[" + parameter + "]." + item.key, trace::Role::kOptimizerState,
            *state);
        value = {trace::TensorRef{static_cast<trace::TensorId>(snapshot_.find(*state))}};
      } else if (const auto* integer = std::get_if<std::int64_t>(&item.value)) {
        value = {*integer};
      } else {
        value = {trace::Real{std::get<double>(item.value)}};
      }
    }
  }

  void add_gradient(std::size_t parameter) {
    const at::Tensor tensor = snapshot_.tensors[parameter].tensor;
    snapshot_.tensors.push_back(
        {snapshot_.tensors[parameter].path + ".grad", trace::Role::kGradient, tensor.grad()});
    if (tensor.grad().defined()) index(snapshot_.tensors.size() - 1);
  }

  void add(std::string path, trace::Role role, const at::Tensor& tensor) {
    if (!tensor.defined() || snapshot_.find(tensor) >= 0) return;
    snapshot_.tensors.push_back({std::move(path), role, tensor});
    index(snapshot_.tensors.size() - 1);
  }

  void index(std::size_t position) {
    const at::Tensor& tensor = snapshot_.tensors[position].tensor;
    snapshot_.positions.emplace(tensor.unsafeGetTensorImpl(), position);
  }

  Snapshot snapshot_;
  ska::flat_hash_set<const torch::nn::Module*> seen_;
};

}  // namespace

std::int64_t Snapshot::find(const at::Tensor& tensor) const {
  if (!tensor.defined()) return -1;
  const auto found = positions.find(tensor.unsafeGetTensorImpl());
  return found == positions.end() ? -1 : static_cast<std::int64_t>(found->second);
}

Snapshot Objects::snapshot() const {
  check_alive();
  return SnapshotBuilder().build(*impl_);
}

}  // namespace steptape::live
