#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace steptape::tests {

/// Memory that ends where a page begins that nobody may touch, and another one before it.
class GuardedMemory {
 public:
  explicit GuardedMemory(std::size_t bytes);
  ~GuardedMemory();
  GuardedMemory(const GuardedMemory&) = delete;
  GuardedMemory& operator=(const GuardedMemory&) = delete;

  void* address() const;
  /// Whether it may be touched; at first it may not.
  void open(bool is_open);

 private:
  std::size_t bytes_, page_, pages_;
  char* whole_;
};

/// Tensors on guarded memory, each on its own.
class GuardedTensors {
 public:
  at::Tensor make(at::IntArrayRef sizes, at::ScalarType dtype = at::kFloat);
  void open(bool is_open);

 private:
  std::vector<std::unique_ptr<GuardedMemory>> memories_;
};

/// Whether `body` touches nothing that it must not. What it throws passes through.
bool touches_nothing_guarded(const std::function<void()>& body);

}  // namespace steptape::tests
