#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "replayer/planner/analysis/writes.h"
#include "replayer/planner/program.h"

namespace steptape::replayer {

/// The memory that each run is given, and what of it a run that ends early must put back.
struct Bound {
  std::vector<trace::BufferId> buffers;
  /// Positions in `buffers`: what a run writes, and of that what it may have written when it ends
  /// early.
  std::vector<std::size_t> written;
  std::vector<std::size_t> undone;
  std::vector<trace::BufferId> refilled;  ///< constants that ops write: new in each run
  bool draws_random = false;
  bool restores_generators = false;
  /// The first op that writes bound memory of which no copy is taken: no op after it should throw.
  std::int64_t first_lasting_write = std::numeric_limits<std::int64_t>::max();
  /// After it nothing but a want of memory can end a run.
  std::int64_t last_deciding_op = -1;
};

/// `writes` is of the program's recording.
Bound bound_of(const Program& program, const Writes& writes);

}  // namespace steptape::replayer
