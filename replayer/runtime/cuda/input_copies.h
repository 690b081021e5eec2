#pragma once

#include <c10/core/Storage.h>

#include <cstddef>
#include <span>
#include <unordered_map>
#include <vector>

#include "replayer/runtime/cuda/plan/static_memory.h"
#include "trace/model.h"

namespace steptape::replayer::cuda {

/// Memory of a plan's own, at addresses that its graphs know, into which inputs are copied before
/// each launch.
class InputCopies {
 public:
  /// `bound` is an Executor's, of buffers of `recording` that lie on `device`.
  InputCopies(const trace::Recording& recording, std::span<const trace::BufferId> bound,
              c10::Device device)
      : recording_(recording), bound_(bound.begin(), bound.end()), device_(device) {}

  /// For a capture: one for each input that `statics` has copied in, as far aligned as what is at
  /// its address now.
  void make(const StaticMemory& statics, std::span<void* const> addresses);

  /// Where the graph goes for the buffer at `position`: `address`, unless there is a copy.
  void* address(std::size_t position, void* address) const;

  /// Throws AssumptionViolated where one is aligned otherwise than the captured one: libraries
  /// choose kernels by that, and an eager step might have other bits.
  void check_alignment(std::span<void* const> addresses) const;

  void copy_in(const std::vector<std::size_t>& positions, std::span<void* const> addresses) const;
  void copy_back(const std::vector<std::size_t>& positions, std::span<void* const> addresses) const;

 private:
  std::uint64_t bytes_of(std::size_t position) const {
    return recording_.buffers[bound_[position]].bytes;
  }
  c10::Storage memory_like(const void* address, std::uint64_t bytes) const;

  const trace::Recording& recording_;
  std::vector<trace::BufferId> bound_;
  c10::Device device_;
  std::unordered_map<std::size_t, c10::Storage> copies_;  ///< by position in `bound_`
};

}  // namespace steptape::replayer::cuda
