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

Hooks hooks_of(const at::Tensor& tensor);

}  // namespace steptape::live
