#pragma once

#include <optional>
#include <string>

#include "trace/model.h"

namespace steptape::session {

/// An op that leaves other bits each time it runs on the same inputs, or may do so: in a trial or
/// an audit it left others than in the plan. It is run again beside the eager step, and from what
/// it left there the rest of the plan is compared bit for bit.
struct SuspectOp {
  trace::Index op;        ///< position in the recording
  bool is_known = false;  ///< it has left other bits than its own
  /// Of all times it was run again, and of all runs of the plan; see live::relative_difference.
  double spread = 0;
  double largest_difference = 0;
};

/// A replay may differ from the eager step in such an op by so many times what it differs from
/// itself: what was seen of that is a sample.
inline constexpr double kMostSpreads = 8;

}  // namespace steptape::session
