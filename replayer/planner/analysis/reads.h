#pragma once

#include <cstdint>
#include <vector>

#include "trace/model.h"

namespace steptape::replayer {

/// For each of Recording::reads the op after which a plan may do it, -1 for before all others: the
/// last one that writes what it reads, or the read before it. What a read gives decides whether the
/// run may go on, so the earlier it comes, the less there is to undo. `recording` must name
/// operators of this process.
std::vector<std::int64_t> earliest_of_reads(const trace::Recording& recording);

}  // namespace steptape::replayer
