#pragma once

#include <cstdint>
#include <vector>

#include "trace/model.h"

namespace steptape::replayer {

/// Where each op of a recording stands in a run: at its own position, but for two kinds.
///
/// What a host read gives decides whether the run may go on: the earlier it comes, the less there
/// is to undo, and the more ops lie side by side. So a read comes after the last op that writes
/// what it reads, and has the place of that op. One that waits for nothing but step counts, as
/// Python's optimizers keep them in tensors, comes before all others, at a place below 0, and so do
/// the ops that count: they write a few bytes of the host's memory that were there before the step,
/// and nothing that comes before them uses those.
///
/// Ops of one place run in the order of the recording, its own op first. `recording` must name
/// operators of this process.
std::vector<std::int64_t> places_of(const trace::Recording& recording);

}  // namespace steptape::replayer
