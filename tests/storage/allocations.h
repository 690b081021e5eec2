#pragma once

#include <cstddef>
#include <cstdint>

/// The test program's operator new, which counts and can be made to fail.
namespace steptape::storage {

/// While it lives, the thread's allocation number `first`, counted from 0, throws std::bad_alloc,
/// and so do the `count` - 1 after it.
class AllocationsFail {
 public:
  AllocationsFail(std::size_t first, std::size_t count);
  ~AllocationsFail();
  AllocationsFail(const AllocationsFail&) = delete;
  AllocationsFail& operator=(const AllocationsFail&) = delete;

  /// Whether one of them was asked for.
  bool reached() const;

 private:
  std::size_t first_;
};

/// While it lives, allocations of the thread neither fail nor count.
class AllocationsSucceed {
 public:
  AllocationsSucceed();
  ~AllocationsSucceed();
  AllocationsSucceed(const AllocationsSucceed&) = delete;
  AllocationsSucceed& operator=(const AllocationsSucceed&) = delete;

 private:
  bool was_armed_;
};

/// Sums up what all threads ask for while it lives. One at a time.
class AllocationCount {
 public:
  AllocationCount();
  ~AllocationCount();
  AllocationCount(const AllocationCount&) = delete;
  AllocationCount& operator=(const AllocationCount&) = delete;

  std::uint64_t bytes() const;
  /// How many more bytes were in use at once than when it began.
  std::uint64_t peak() const;
};

}  // namespace steptape::storage
