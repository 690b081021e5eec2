#pragma once

#include <cstddef>
#include <cstdint>

namespace steptape::replayer::cpu {

/// What a section is doing for a plan.
struct SectionStats {
  std::size_t stages = 0;
  std::size_t lanes = 1;          ///< threads that its work is shared out to now
  std::uint64_t in_order_ns = 0;  ///< what it took in order and shared out; 0: not measured
  std::uint64_t shared_ns = 0;
  bool differed = false;  ///< shared out, it left other bits in its trial: never shared out again
};

}  // namespace steptape::replayer::cpu
