#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <span>
#include <string>

namespace steptape::replayer {

/// An entry of a file of weights.
struct NamedTensor {
  std::string name;
  at::Tensor tensor;  ///< on the CPU
};

/// Of a contiguous tensor.
inline std::span<const std::byte> bytes_of(const NamedTensor& entry) {
  return {static_cast<const std::byte*>(entry.tensor.const_data_ptr()), entry.tensor.nbytes()};
}

}  // namespace steptape::replayer
