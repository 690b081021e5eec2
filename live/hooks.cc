#include "live/hooks.h"

#include <c10/util/StringUtil.h>
#include <torch/csrc/autograd/cpp_hook.h>

#include <algorithm>

#include "live/fields.h"

namespace steptape::live {
namespace {

ListHooks list_hooks = nullptr;

bool same(const HookList* a, const HookList* b) {
  return a == nullptr || b == nullptr ? a == b : a->same(*b);
}

}  // namespace

void set_hook_lists(ListHooks lists) { list_hooks = lists; }

Hooks hooks_of(const c10::TensorImpl& tensor) {
  const torch::autograd::AutogradMeta* meta = autograd_meta_of(tensor);
  Hooks hooks;
  if (!has_hooks(meta)) return hooks;
  hooks.list = std::shared_ptr<const void>(meta->cpp_hooks_list_);
  if (meta->cpp_hooks_list_) {
    const auto& list = *meta->cpp_hooks_list_;
    hooks.places = list.size();
    hooks.registered = static_cast<std::size_t>(
        std::count_if(list.begin(), list.end(), [](const auto& hook) { return hook != nullptr; }));
  }
  hooks.wrappers = meta->hooks_.size();
  if (!meta->hooks_.empty()) hooks.first_wrapper = meta->hooks_.front().get();
  hooks.after_accumulate = meta->post_acc_grad_hooks_.get();
  if (list_hooks != nullptr) hooks.listed = list_hooks(tensor);
  return hooks;
}

// lists are told by who owns them: the address of one that is gone may serve another
bool operator==(const Hooks& a, const Hooks& b) {
  return !a.list.owner_before(b.list) && !b.list.owner_before(a.list) && a.places == b.places &&
         a.registered == b.registered && a.wrappers == b.wrappers &&
         a.first_wrapper == b.first_wrapper && a.after_accumulate == b.after_accumulate &&
         same(a.listed.get(), b.listed.get());
}

std::string Hooks::text() const {
  // Python keeps its hooks behind one wrapper
  const std::size_t count = places != 0 ? registered : wrappers;
  std::string text = count == 0 ? "none" : c10::str(count, count == 1 ? " hook" : " hooks");
  if (after_accumulate != nullptr) text += count == 0 ? "" : " and ";
  if (after_accumulate == nullptr) return text;
  return count == 0 ? "one after the accumulation" : text + "one after the accumulation";
}

}  // namespace steptape::live
