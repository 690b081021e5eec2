#include "guards/module_guard.h"

#include <algorithm>

#include "guards/mismatch.h"

namespace steptape::guards {
namespace {

/// Module::parameters_ is protected, and the public look-ups copy names.
struct Registered : torch::nn::Module {
  static const torch::OrderedDict<std::string, at::Tensor>& parameters_of(
      const torch::nn::Module& module) {
    return module.*&Registered::parameters_;
  }
};

}  // namespace

ModuleGuard::ModuleGuard(const live::Snapshot& snapshot) {
  for (const live::ModuleAt& at : snapshot.modules) {
    if (at.module == nullptr) continue;
    Node node{at.path, at.module, at.training, {}, {}, {}};
    for (const auto& item : Registered::parameters_of(*at.module)) {
      node.parameters.emplace_back(item.key(), item.value().unsafeGetTensorImpl());
    }
    for (const at::Tensor& buffer : at.module->buffers(/*recurse=*/false)) {
      node.buffers.push_back(buffer.unsafeGetTensorImpl());
    }
    for (const auto& child : at.module->children()) node.children.emplace_back(child);
    nodes_.push_back(std::move(node));
  }
}

Verdict ModuleGuard::check() const {
  for (const Node& node : nodes_) {
    if (Verdict verdict = check_node(node); !verdict) return verdict;
  }
  return {};
}

Verdict ModuleGuard::check_node(const Node& node) {
  if (node.module->is_training() != node.training) {
    return failed(node.path + ".training", node.training ? "true" : "false",
                  node.training ? "false" : "true");
  }
  if (Verdict verdict = check_parameters(node); !verdict) return verdict;
  const std::vector<at::Tensor> buffers = node.module->buffers(/*recurse=*/false);
  const bool same_buffers = std::equal(
      buffers.begin(), buffers.end(), node.buffers.begin(), node.buffers.end(),
      [](const at::Tensor& a, const c10::TensorImpl* b) { return a.unsafeGetTensorImpl() == b; });
  if (!same_buffers) {
    return failed(node.path + " (buffers)", "the tensors registered when it was recorded",
                  "others");
  }
  const auto children = node.module->children();
  const bool same_children = std::equal(
      children.begin(), children.end(), node.children.begin(), node.children.end(),
      [](const auto& a, const auto& b) { return !a.owner_before(b) && !b.owner_before(a); });
  if (!same_children) {
    return failed(node.path + " (sub-modules)", "the modules registered when it was recorded",
                  "others");
  }
  return {};
}

Verdict ModuleGuard::check_parameters(const Node& node) {
  const auto& registered = Registered::parameters_of(*node.module);
  if (registered.size() != node.parameters.size()) {
    return failed(node.path + " (number of parameters)",
                  static_cast<std::int64_t>(node.parameters.size()),
                  static_cast<std::int64_t>(registered.size()));
  }
  for (std::size_t i = 0; i < node.parameters.size(); ++i) {
    const auto& item = registered[i];
    const auto& [name, impl] = node.parameters[i];
    if (item.value().unsafeGetTensorImpl() == impl && item.key() == name) continue;
    return failed(node.path + "." + name, "the tensor registered when it was recorded", "another");
  }
  return {};
}

}  // namespace steptape::guards
