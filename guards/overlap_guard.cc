#include "guards/overlap_guard.h"

#include <algorithm>
#include <cstdint>

#include "guards/mismatch.h"

namespace steptape::guards {

OverlapGuard::OverlapGuard(const trace::Recording& recording,
                           const std::vector<trace::BufferId>& bound,
                           const std::vector<trace::BufferId>& written) {
  for (std::size_t i = 0; i < bound.size(); ++i) {
    const trace::Buffer& buffer = recording.buffers[bound[i]];
    const Bound found{buffer.path, buffer.bytes, i};
    if (buffer.role == trace::Role::kInput) inputs_.push_back(found);
    if (std::ranges::find(written, bound[i]) != written.end()) written_.push_back(found);
  }
}

Verdict OverlapGuard::check(std::span<void* const> memory) const {
  for (const Bound& input : inputs_) {
    const auto first = reinterpret_cast<std::uintptr_t>(memory[input.position]);
    for (const Bound& written : written_) {
      const auto other = reinterpret_cast<std::uintptr_t>(memory[written.position]);
      const bool apart = first + input.bytes <= other || other + written.bytes <= first;
      if (apart || input.position == written.position) continue;
      return failed(input.path, "memory of its own",
                    "memory of " + written.path + ", which the step writes");
    }
  }
  return {};
}

}  // namespace steptape::guards
