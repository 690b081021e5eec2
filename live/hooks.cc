#include "live/hooks.h"

#include <torch/csrc/autograd/cpp_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>

namespace steptape::live {

Autograd autograd_of(const c10::TensorImpl& tensor) {
  // all metadata of dense tensors is of this class, as get_autograd_meta() has it
  const auto* meta = static_cast<const torch::autograd::AutogradMeta*>(tensor.autograd_meta());
  if (meta == nullptr) return {};
  Autograd found;
  found.requires_grad = meta->requires_grad_ || meta->grad_fn_ != nullptr;
  if (meta->grad_.defined()) found.gradient = meta->grad_.unsafeGetTensorImpl();
  Hooks& hooks = found.hooks;
  hooks.list = meta->cpp_hooks_list_.get();
  if (meta->cpp_hooks_list_) {
    const auto& list = *meta->cpp_hooks_list_;
    hooks.registered = static_cast<std::size_t>(
        std::count_if(list.begin(), list.end(), [](const auto& hook) { return hook != nullptr; }));
  }
  hooks.wrappers = meta->hooks_.size();
  hooks.after_accumulate = meta->post_acc_grad_hooks_.get();
  return found;
}

}  // namespace steptape::live
