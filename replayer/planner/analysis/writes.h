#pragma once

#include <cstdint>
#include <vector>

#include "trace/model.h"

namespace steptape::replayer {

/// What a recording writes of memory that outlives the step, and what that means for undoing it.
struct Writes {
  /// Buffers made before the step that an op writes, with the place in a run of the first that
  /// does; in buffer order.
  struct Write {
    trace::BufferId buffer;
    std::int64_t first;
  };
  std::vector<Write> writes;
  /// The last op that may throw because of the bytes it reads, or after which a plan looks at a
  /// value for the host; -1 when there is none, or none but before all others.
  std::int64_t last_throwing_op = -1;
  bool draws_random = false;
  std::vector<std::int64_t> places;  ///< places_of
};

/// Buffers that an op writes, of those that it is given. None for an operator that this process
/// lacks.
std::vector<trace::BufferId> written_by(const trace::Recording& recording, const trace::Op& op);

/// `recording` must name operators of this process.
Writes writes_of(const trace::Recording& recording);

}  // namespace steptape::replayer
