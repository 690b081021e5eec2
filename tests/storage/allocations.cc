#include "tests/storage/allocations.h"

#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <new>
#include <utility>

namespace steptape::storage {
namespace {

struct Countdown {
  bool armed = false;
  std::size_t seen = 0;
  std::size_t first = 0;
  std::size_t count = 0;
};

thread_local Countdown countdown;
std::atomic<bool> counting{false};
std::atomic<std::uint64_t> counted{0};
std::atomic<std::int64_t> in_use{0};
std::atomic<std::int64_t> most_in_use{0};

void count_use(void* memory) {
  const std::int64_t now = in_use += static_cast<std::int64_t>(::malloc_usable_size(memory));
  std::int64_t most = most_in_use;
  while (now > most && !most_in_use.compare_exchange_weak(most, now)) {
  }
}

void deallocate(void* memory) {
  if (counting.load(std::memory_order_relaxed)) {
    in_use -= static_cast<std::int64_t>(::malloc_usable_size(memory));
  }
  std::free(memory);
}

bool may_allocate() {
  if (!countdown.armed) return true;
  const std::size_t number = countdown.seen++;
  return number < countdown.first || number - countdown.first >= countdown.count;
}

void* allocate(std::size_t bytes, std::size_t alignment) {
  if (counting.load(std::memory_order_relaxed)) counted.fetch_add(bytes);
  if (!may_allocate()) throw std::bad_alloc();
  bytes = std::max<std::size_t>(bytes, 1);
  void* const memory =
      alignment <= __STDCPP_DEFAULT_NEW_ALIGNMENT__
          ? std::malloc(bytes)
          : std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  if (memory == nullptr) throw std::bad_alloc();
  if (counting.load(std::memory_order_relaxed)) count_use(memory);
  return memory;
}

}  // namespace

AllocationsFail::AllocationsFail(std::size_t first, std::size_t count) : first_(first) {
  countdown = {true, 0, first, count};
}

AllocationsFail::~AllocationsFail() { countdown = {}; }

bool AllocationsFail::reached() const { return countdown.seen > first_; }

AllocationsSucceed::AllocationsSucceed() : was_armed_(std::exchange(countdown.armed, false)) {}

AllocationsSucceed::~AllocationsSucceed() { countdown.armed = was_armed_; }

AllocationCount::AllocationCount() {
  counted = 0;
  in_use = most_in_use = 0;
  counting = true;
}

AllocationCount::~AllocationCount() { counting = false; }

std::uint64_t AllocationCount::bytes() const { return counted; }

std::uint64_t AllocationCount::peak() const {
  return static_cast<std::uint64_t>(most_in_use.load());
}

}  // namespace steptape::storage

void* operator new(std::size_t bytes) {
  return steptape::storage::allocate(bytes, __STDCPP_DEFAULT_NEW_ALIGNMENT__);
}
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return steptape::storage::allocate(bytes, static_cast<std::size_t>(alignment));
}
void operator delete(void* memory) noexcept { steptape::storage::deallocate(memory); }
void operator delete(void* memory, std::size_t) noexcept { steptape::storage::deallocate(memory); }
void operator delete(void* memory, std::align_val_t) noexcept {
  steptape::storage::deallocate(memory);
}
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
  steptape::storage::deallocate(memory);
}
