#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <memory>
#include <string>

namespace steptape::live {

/// Hooks of a tensor that a front end keeps in its own way, in one that autograd sees.
class HookList {
 public:
  virtual ~HookList() = default;
  virtual bool same(const HookList& other) const = 0;
};
/// Gives those of a tensor, or null.
using ListHooks = std::shared_ptr<const HookList> (*)(const c10::TensorImpl&);
/// Called once, by a front end that has any.
void set_hook_lists(ListHooks lists);

/// The hooks that autograd would run for a leaf: how many, and whose. A C++ hook that is removed
/// leaves its place empty and another takes a new one, so that places and hooks together tell which
/// there are.
struct Hooks {
  std::weak_ptr<const void> list;          ///< where the C++ hooks are kept, if there are any
  std::size_t places = 0;                  ///< C++ hooks that were ever registered
  std::size_t registered = 0;              ///< C++ hooks that were not removed
  std::size_t wrappers = 0;                ///< C++ and Python hook containers
  const void* first_wrapper = nullptr;     ///< the first of them
  const void* after_accumulate = nullptr;  ///< the hook after the accumulation
  std::shared_ptr<const HookList> listed;  ///< those of a front end
  friend bool operator==(const Hooks& a, const Hooks& b);

  /// "none", "2 hooks and one after the accumulation".
  std::string text() const;
};

Hooks hooks_of(const c10::TensorImpl& tensor);

}  // namespace steptape::live
