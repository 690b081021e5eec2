#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <utility>

namespace steptape::tests::simulated {

enum class MemoryKind { kPageable, kPinned, kDevice };

/// The memory that the runtime knows: device allocations and pinned host memory, all of it host
/// memory. What is freed is filled with 0xcd and kept aside a while, so that a late read gives
/// that pattern instead of ending the process; new device memory holds it too, at its start, so
/// that nothing counts on zeros. Not thread safe.
class Memory {
 public:
  static constexpr std::size_t kAlignment = 2 << 20;  ///< of device allocations, in bytes

  /// nullptr when the limit does not allow it.
  void* allocate_device(std::size_t bytes);
  void* allocate_pinned(std::size_t bytes);
  /// False when `base` is no allocation of that kind.
  bool release(void* base, MemoryKind kind);

  /// Memory of the caller's that counts as pinned from here on.
  void register_pinned(void* base, std::size_t bytes);
  bool unregister_pinned(void* base);

  MemoryKind kind_of(const void* address) const;
  std::size_t allocated_bytes() const { return allocated_bytes_; }
  std::size_t limit_bytes() const { return limit_bytes_; }
  void set_limit(std::size_t bytes) { limit_bytes_ = bytes; }

 private:
  struct Range {
    std::size_t bytes = 0;
    MemoryKind kind = MemoryKind::kPageable;
    bool is_owned = true;
  };
  void* allocate(std::size_t bytes, MemoryKind kind);

  std::map<std::uintptr_t, Range> ranges_;
  std::deque<std::pair<void*, std::size_t>> freed_;
  std::size_t freed_bytes_ = 0;
  std::size_t allocated_bytes_ = 0;
  std::size_t limit_bytes_ = std::size_t{16} << 30;
};

}  // namespace steptape::tests::simulated
