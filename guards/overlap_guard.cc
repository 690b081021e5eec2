#include "guards/overlap_guard.h"

#include <algorithm>
#include <cstdint>
#include <iterator>

#include "guards/entry.h"
#include "guards/mismatch.h"
#include "trace/windows.h"

namespace steptape::guards {
namespace {

bool is_lasting(trace::Role role) {
  using enum trace::Role;
  return role == kParameter || role == kModuleBuffer || role == kOptimizerState ||
         role == kGradient;
}

}  // namespace

bool OverlapGuard::Bound::is_part_of(const Bound& other) const {
  return std::ranges::find(lies_in, other.position) != lies_in.end();
}

OverlapGuard::OverlapGuard(const trace::Recording& recording,
                           const std::vector<trace::BufferId>& bound,
                           const std::vector<trace::BufferId>& written) {
  const std::vector<std::int64_t> position = positions_of(recording, bound);
  std::vector<bool> is_written(recording.buffers.size());
  for (const trace::BufferId buffer : written) is_written[buffer] = true;
  for (std::size_t i = 0; i < bound.size(); ++i) {
    const trace::Buffer& buffer = recording.buffers[bound[i]];
    Bound found{buffer.path, buffer.bytes, i, is_written[bound[i]]};
    for (auto window = recording.windows.rbegin(); window != recording.windows.rend(); ++window) {
      const bool is_it = found.lies_in.empty() ? window->buffer == bound[i]
                                               : window->buffer == bound[found.lies_in.back()];
      if (!is_it) continue;
      const std::int64_t base = position[trace::WindowOfRun(recording, *window).base()];
      if (base >= 0) found.lies_in.push_back(static_cast<std::size_t>(base));
    }
    (buffer.role == trace::Role::kInput ? inputs_ : others_).push_back(found);
    if (!is_written[bound[i]] || buffer.bytes == 0) continue;
    (is_lasting(buffer.role) ? lasting_.bound : passing_).push_back(found);
  }
  if (std::ranges::none_of(inputs_, &Bound::is_written)) return;
  std::ranges::copy_if(others_, std::back_inserter(used_.bound),
                       [](const Bound& bound) { return bound.bytes != 0; });
}

Verdict OverlapGuard::check(std::span<void* const> memory, std::uint64_t moves) const {
  if (inputs_.empty()) return {};
  const bool is_still = is_known_ && moves == moves_;
  if (is_still && !is_sorted_) {
    lasting_.sort(memory);
    used_.sort(memory);
  }
  is_sorted_ = is_still;
  is_known_ = true;
  moves_ = moves;
  for (const Bound& input : inputs_) {
    const Against& against = input.is_written ? used_ : lasting_;
    if (!is_sorted_ || against.may_overlap(input, memory)) {
      if (Verdict verdict = check_each(input, against.bound, memory); !verdict) return verdict;
    }
    if (Verdict verdict = check_each(input, passing_, memory); !verdict) return verdict;
  }
  return {};
}

Verdict OverlapGuard::check_apart(std::span<void* const> memory, std::uint64_t moves) const {
  if (moves_apart_ == moves) return {};
  const auto first = [memory](const Bound* bound) {
    return reinterpret_cast<std::uintptr_t>(memory[bound->position]);
  };
  std::vector<const Bound*> in_order;
  for (const Bound& bound : others_) {
    if (bound.bytes != 0 && memory[bound.position] != nullptr) in_order.push_back(&bound);
  }
  std::ranges::sort(in_order, {}, first);
  // of those before it the one that reaches furthest
  const Bound* any = nullptr;
  const Bound* written = nullptr;
  for (const Bound* bound : in_order) {
    const Bound* other = bound->is_written ? any : written;
    if (other != nullptr && first(other) + other->bytes > first(bound)) {
      // Where both are written, what is said does not depend on which address is the lower.
      const bool is_first = bound->position < other->position;
      const Bound* writer = bound->is_written && (is_first || !other->is_written) ? bound : other;
      return failed(GuardKind::kOverlap, (writer == bound ? other : bound)->path,
                    "memory of its own", "memory of " + writer->path + ", which the step writes");
    }
    const auto reaches_further = [&](const Bound* than) {
      return than == nullptr || first(bound) + bound->bytes > first(than) + than->bytes;
    };
    if (reaches_further(any)) any = bound;
    if (bound->is_written && reaches_further(written)) written = bound;
  }
  moves_apart_ = moves;
  return {};
}

void OverlapGuard::Against::sort(std::span<void* const> memory) const {
  sorted.clear();
  for (const Bound& other : bound) {
    const auto first = reinterpret_cast<std::uintptr_t>(memory[other.position]);
    sorted.push_back({first, first + other.bytes});
  }
  std::ranges::sort(sorted, {}, &Range::first);
  std::uintptr_t furthest = 0;
  for (Range& range : sorted) furthest = range.last = std::max(furthest, range.last);
}

bool OverlapGuard::Against::may_overlap(const Bound& input, std::span<void* const> memory) const {
  const auto first = reinterpret_cast<std::uintptr_t>(memory[input.position]);
  const auto after = std::ranges::lower_bound(sorted, first + input.bytes, {}, &Range::first);
  return after != sorted.begin() && std::prev(after)->last > first;
}

Verdict OverlapGuard::check_each(const Bound& input, const std::vector<Bound>& others,
                                 std::span<void* const> memory) {
  const auto first = reinterpret_cast<std::uintptr_t>(memory[input.position]);
  for (const Bound& other : others) {
    const auto begin = reinterpret_cast<std::uintptr_t>(memory[other.position]);
    const bool apart = first + input.bytes <= begin || begin + other.bytes <= first;
    if (apart || input.position == other.position) continue;
    if (input.is_part_of(other) || other.is_part_of(input)) continue;
    const Bound& written = other.is_written ? other : input;
    return failed(GuardKind::kOverlap, (&written == &other ? input : other).path,
                  "memory of its own", "memory of " + written.path + ", which the step writes");
  }
  return {};
}

}  // namespace steptape::guards
