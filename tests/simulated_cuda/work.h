#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace steptape::tests::simulated {

/// The values of a kernel's parameters, one after the other at the offsets of its Function.
using Parameters = std::vector<std::byte>;

/// A kernel as the runtime knows it: its address is the `func` of a kernel node. There is one for
/// each name and parameter layout, and it lives as long as the process.
struct Function {
  std::string name;
  std::vector<std::size_t> sizes;  ///< of each parameter, in bytes
  std::vector<std::size_t> offsets;
};
const Function* function_of(const std::string& name, const std::vector<std::size_t>& sizes);
/// The function at `address`, or nullptr when no function lies there.
const Function* find_function(const void* address);

/// What a stream runs and what a graph node holds.
struct Work {
  cudaGraphNodeType type = cudaGraphNodeTypeEmpty;
  const Function* function = nullptr;  ///< of a kernel
  dim3 grid{1, 1, 1};
  dim3 block{1, 1, 1};
  std::shared_ptr<const Parameters> parameters;  ///< of a kernel; shared because launches copy them
  void* copies_to = nullptr;                     ///< of a copy, as is the next
  const void* copies_from = nullptr;
  /// Does the work. Borrows the memory it works on, as a kernel does. Throws to fail the device.
  std::function<void(std::span<const std::byte> parameters)> body;
};

}  // namespace steptape::tests::simulated
