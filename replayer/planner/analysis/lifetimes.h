#pragma once

#include <cstdint>
#include <vector>

#include "trace/model.h"

namespace steptape::replayer {

/// When a buffer is alive, in op positions. Aliasing is settled by looking at buffers, not tensors:
/// a view keeps what it looks at alive.
struct Lifetime {
  std::int64_t defined = -1;  ///< the op that made it, or -1 for one that was there before the step
  std::int64_t last_use = -1;  ///< ops.size() for what the user sees after the step
  bool made_inside = false;    ///< an op of the step returned it first
  bool is_used = false;        ///< anything names it at all
};

/// One for each buffer of a validated recording.
std::vector<Lifetime> lifetimes_of(const trace::Recording& recording);

}  // namespace steptape::replayer
