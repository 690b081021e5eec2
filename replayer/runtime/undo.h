#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <cstddef>
#include <span>
#include <vector>

namespace steptape::replayer {

/// A stretch of memory that a run may write.
struct Region {
  void* address = nullptr;
  std::size_t bytes = 0;
  c10::Device device = c10::Device(c10::kCPU);
};

/// Copies of memory and generator states, to be written back: in place, never swapped, since users
/// hold pointers.
class Undo {
 public:
  /// Copies aside what is there now, on its own device. Throws std::bad_alloc or
  /// c10::OutOfMemoryError when memory is short.
  void take(std::span<const Region> regions, std::span<const at::Generator> generators);
  /// Writes everything back.
  void restore();
  /// Lets go of memory of devices; that of the host serves the next copies.
  void forget();

 private:
  std::vector<Region> regions_;
  std::vector<std::byte> bytes_;     ///< of those on the host, one after the other
  std::vector<at::DataPtr> copies_;  ///< of the others, in their order
  std::vector<at::Generator> generators_;
  std::vector<at::Tensor> states_;
};

}  // namespace steptape::replayer
