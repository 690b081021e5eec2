#include "tests/simulated_cuda/memory.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace steptape::tests::simulated {
namespace {

constexpr std::size_t kFreedBytesKept = std::size_t{512} << 20;
constexpr std::size_t kNewBytesFilled = std::size_t{64} << 20;
constexpr int kPattern = 0xcd;

std::uintptr_t address_of(const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer); }

}  // namespace

void* Memory::allocate(std::size_t bytes, MemoryKind kind) {
  const std::size_t rounded =
      std::max(bytes + kAlignment - 1, kAlignment) / kAlignment * kAlignment;
  void* const base = std::aligned_alloc(kAlignment, rounded);
  if (base) ranges_[address_of(base)] = {bytes, kind, true};
  return base;
}

void* Memory::allocate_device(std::size_t bytes) {
  if (bytes > limit_bytes_ - std::min(limit_bytes_, allocated_bytes_)) return nullptr;
  void* const base = allocate(bytes, MemoryKind::kDevice);
  if (!base) return nullptr;
  std::memset(base, kPattern, std::min(bytes, kNewBytesFilled));
  allocated_bytes_ += bytes;
  return base;
}

void* Memory::allocate_pinned(std::size_t bytes) { return allocate(bytes, MemoryKind::kPinned); }

bool Memory::release(void* base, MemoryKind kind) {
  const auto found = ranges_.find(address_of(base));
  if (found == ranges_.end() || found->second.kind != kind || !found->second.is_owned) return false;
  const std::size_t bytes = found->second.bytes;
  ranges_.erase(found);
  if (kind == MemoryKind::kDevice) allocated_bytes_ -= bytes;
  std::memset(base, kPattern, bytes);
  freed_.emplace_back(base, bytes);
  freed_bytes_ += bytes;
  while (freed_bytes_ > kFreedBytesKept) {
    std::free(freed_.front().first);
    freed_bytes_ -= freed_.front().second;
    freed_.pop_front();
  }
  return true;
}

void Memory::register_pinned(void* base, std::size_t bytes) {
  ranges_[address_of(base)] = {bytes, MemoryKind::kPinned, false};
}

bool Memory::unregister_pinned(void* base) {
  const auto found = ranges_.find(address_of(base));
  if (found == ranges_.end() || found->second.is_owned) return false;
  ranges_.erase(found);
  return true;
}

MemoryKind Memory::kind_of(const void* address) const {
  auto next = ranges_.upper_bound(address_of(address));
  if (next == ranges_.begin()) return MemoryKind::kPageable;
  const auto& [base, range] = *--next;
  return address_of(address) < base + std::max<std::size_t>(range.bytes, 1) ? range.kind
                                                                            : MemoryKind::kPageable;
}

}  // namespace steptape::tests::simulated
