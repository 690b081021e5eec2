#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>

namespace steptape::live {

/// The hooks that autograd would run for a leaf: how many, and whose. C++ hooks cannot be compared,
/// so one that is replaced by another in the same place looks the same.
struct Hooks {
  const void* list = nullptr;              ///< where the C++ hooks are kept
  std::size_t registered = 0;              ///< C++ hooks that were not removed
  std::size_t wrappers = 0;                ///< C++ and Python hook containers
  const void* after_accumulate = nullptr;  ///< the hook behind the accumulation
  friend bool operator==(const Hooks&, const Hooks&) = default;
};

/// What autograd keeps of a tensor.
struct Autograd {
  bool requires_grad = false;
  c10::TensorImpl* gradient = nullptr;  ///< null: None
  Hooks hooks;
};

Autograd autograd_of(const c10::TensorImpl& tensor);
inline Hooks hooks_of(const at::Tensor& tensor) {
  return autograd_of(*tensor.unsafeGetTensorImpl()).hooks;
}

}  // namespace steptape::live
