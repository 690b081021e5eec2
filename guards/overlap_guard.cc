#include "guards/overlap_guard.h"

#include <algorithm>
#include <cstdint>

#include "guards/mismatch.h"

namespace steptape::guards {
namespace {

bool is_lasting(trace::Role role) {
  using enum trace::Role;
  return role == kParameter || role == kModuleBuffer || role == kOptimizerState ||
         role == kGradient;
}

}  // namespace

OverlapGuard::OverlapGuard(const trace::Recording& recording,
                           const std::vector<trace::BufferId>& bound,
                           const std::vector<trace::BufferId>& written) {
  std::vector<bool> is_written(recording.buffers.size());
  for (const trace::BufferId buffer : written) is_written[buffer] = true;
  for (std::size_t i = 0; i < bound.size(); ++i) {
    const trace::Buffer& buffer = recording.buffers[bound[i]];
    const Bound found{buffer.path, buffer.bytes, i};
    if (buffer.role == trace::Role::kInput) inputs_.push_back(found);
    if (!is_written[bound[i]] || buffer.bytes == 0) continue;
    (is_lasting(buffer.role) ? lasting_ : passing_).push_back(found);
  }
}

Verdict OverlapGuard::check(std::span<void* const> memory, std::uint64_t moves) const {
  if (inputs_.empty()) return {};
  const bool is_still = is_known_ && moves == moves_;
  if (is_still && !is_sorted_) sort(memory);
  is_sorted_ = is_still;
  is_known_ = true;
  moves_ = moves;
  for (const Bound& input : inputs_) {
    if (!is_sorted_ || may_overlap(input, memory)) {
      if (Verdict verdict = check_each(input, lasting_, memory); !verdict) return verdict;
    }
    if (Verdict verdict = check_each(input, passing_, memory); !verdict) return verdict;
  }
  return {};
}

void OverlapGuard::sort(std::span<void* const> memory) const {
  sorted_.clear();
  for (const Bound& written : lasting_) {
    const auto first = reinterpret_cast<std::uintptr_t>(memory[written.position]);
    sorted_.push_back({first, first + written.bytes});
  }
  std::ranges::sort(sorted_, {}, &Range::first);
  std::uintptr_t furthest = 0;
  for (Range& range : sorted_) furthest = range.last = std::max(furthest, range.last);
}

bool OverlapGuard::may_overlap(const Bound& input, std::span<void* const> memory) const {
  const auto first = reinterpret_cast<std::uintptr_t>(memory[input.position]);
  const auto behind = std::ranges::lower_bound(sorted_, first + input.bytes, {}, &Range::first);
  return behind != sorted_.begin() && std::prev(behind)->last > first;
}

Verdict OverlapGuard::check_each(const Bound& input, const std::vector<Bound>& written,
                                 std::span<void* const> memory) {
  const auto first = reinterpret_cast<std::uintptr_t>(memory[input.position]);
  for (const Bound& other : written) {
    const auto begin = reinterpret_cast<std::uintptr_t>(memory[other.position]);
    const bool apart = first + input.bytes <= begin || begin + other.bytes <= first;
    if (apart || input.position == other.position) continue;
    return failed(GuardKind::kOverlap, input.path, "memory of its own",
                  "memory of " + other.path + ", which the step writes");
  }
  return {};
}

}  // namespace steptape::guards
