#include "live/hooks.h"

#include <c10/util/StringUtil.h>
#include <torch/csrc/autograd/cpp_hook.h>

#include <algorithm>

#include "live/autograd_fields.h"

namespace steptape::live {

Hooks hooks_of(const c10::TensorImpl& tensor) {
  const torch::autograd::AutogradMeta* meta = autograd_meta_of(tensor);
  Hooks hooks;
  if (!has_hooks(meta)) return hooks;
  hooks.list = meta->cpp_hooks_list_.get();
  if (meta->cpp_hooks_list_) {
    const auto& list = *meta->cpp_hooks_list_;
    hooks.places = list.size();
    hooks.registered = static_cast<std::size_t>(
        std::count_if(list.begin(), list.end(), [](const auto& hook) { return hook != nullptr; }));
  }
  hooks.wrappers = meta->hooks_.size();
  if (!meta->hooks_.empty()) hooks.first_wrapper = meta->hooks_.front().get();
  hooks.after_accumulate = meta->post_acc_grad_hooks_.get();
  return hooks;
}

std::weak_ptr<const void> hooks_list_of(const c10::TensorImpl& tensor) {
  const torch::autograd::AutogradMeta* meta = autograd_meta_of(tensor);
  return meta == nullptr ? nullptr : std::shared_ptr<const void>(meta->cpp_hooks_list_);
}

std::string Hooks::text() const {
  // Python keeps its hooks behind one wrapper
  const std::size_t count = list != nullptr ? registered : wrappers;
  std::string text = count == 0 ? "none" : c10::str(count, count == 1 ? " hook" : " hooks");
  if (after_accumulate != nullptr) text += count == 0 ? "" : " and ";
  if (after_accumulate == nullptr) return text;
  return count == 0 ? "one behind the accumulation" : text + "one behind the accumulation";
}

}  // namespace steptape::live
