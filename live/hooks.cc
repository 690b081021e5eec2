#include "live/hooks.h"

#include <torch/csrc/autograd/cpp_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>

namespace steptape::live {

Hooks hooks_of(const at::Tensor& tensor) {
  const auto* meta = torch::autograd::impl::get_autograd_meta(tensor);
  if (meta == nullptr) return {};
  Hooks hooks;
  hooks.list = meta->cpp_hooks_list_.get();
  if (meta->cpp_hooks_list_) {
    const auto& list = *meta->cpp_hooks_list_;
    hooks.registered = static_cast<std::size_t>(
        std::count_if(list.begin(), list.end(), [](const auto& hook) { return hook != nullptr; }));
  }
  hooks.wrappers = meta->hooks_.size();
  hooks.after_accumulate = meta->post_acc_grad_hooks_.get();
  return hooks;
}

}  // namespace steptape::live
