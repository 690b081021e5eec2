#include "replayer/runtime/cuda/input_copies.h"

#include <algorithm>
#include <cstdint>
#include <string>

#include "guards/mismatch.h"
#include "live/contents.h"
#include "replayer/runtime/number_proofs.h"
#include "replayer/runtime/tensor_on.h"

namespace steptape::replayer::cuda {
namespace {

/// Libraries choose kernels by how far addresses are aligned, up to so many bytes (cublasLt in
/// LibTorch's `addmm` with an activation).
constexpr std::uintptr_t kMostAligned = 256;
/// What the device's allocator aligns to.
constexpr std::uintptr_t kBlock = 512;

std::uintptr_t alignment_of(const void* address) {
  const auto bits = reinterpret_cast<std::uintptr_t>(address);
  return bits == 0 ? kMostAligned : std::min(bits & -bits, kMostAligned);
}

}  // namespace

void InputCopies::make(const StaticMemory& statics, std::span<void* const> addresses) {
  for (std::size_t i = 0; i < bound_.size(); ++i) {
    if (statics.hold(i) != Hold::kCopiedIn) {
      copies_.erase(i);
      continue;
    }
    const auto found = copies_.find(i);
    const bool fits =
        found != copies_.end() && alignment_of(found->second.data()) == alignment_of(addresses[i]);
    if (!fits) copies_.insert_or_assign(i, memory_like(addresses[i], bytes_of(i)));
  }
}

c10::Storage InputCopies::memory_like(const void* address, std::uint64_t bytes) const {
  const auto remainder = reinterpret_cast<std::uintptr_t>(address) % kBlock;
  const c10::Storage whole = allocate(bytes + kBlock, 0, device_.type());
  char* first = static_cast<char*>(whole.mutable_data());
  const auto now = reinterpret_cast<std::uintptr_t>(first) % kBlock;
  return storage_within(whole, first + (remainder + kBlock - now) % kBlock, bytes);
}

void* InputCopies::address(std::size_t position, void* address) const {
  const auto own = copies_.find(position);
  return own == copies_.end() ? address : own->second.mutable_data();
}

void InputCopies::check_alignment(std::span<void* const> addresses) const {
  for (const auto& [position, own] : copies_) {
    const std::uintptr_t expected = alignment_of(own.data());
    const std::uintptr_t found = alignment_of(addresses[position]);
    if (expected == found) continue;
    const std::string& path = recording_.buffers[bound_[position]].path;
    throw AssumptionViolated(RefusalCode::kDevice,
                             guards::failed(GuardKind::kAlignment, path + ".data_ptr() (alignment)",
                                            std::to_string(expected), std::to_string(found)));
  }
}

void InputCopies::copy_in(const std::vector<std::size_t>& positions,
                          std::span<void* const> addresses) const {
  for (const std::size_t i : positions) {
    live::copy_bytes(copies_.at(i).mutable_data(), device_, addresses[i], device_, bytes_of(i));
  }
}

void InputCopies::copy_back(const std::vector<std::size_t>& positions,
                            std::span<void* const> addresses) const {
  for (const std::size_t i : positions) {
    live::copy_bytes(addresses[i], device_, copies_.at(i).data(), device_, bytes_of(i));
  }
}

}  // namespace steptape::replayer::cuda
