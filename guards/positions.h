#pragma once

#include <cstdint>
#include <vector>

#include "trace/model.h"

namespace steptape::guards {

/// Where the address of each buffer belongs in the memory list of a run, or -1: the inverse of a
/// plan's list of bound buffers.
std::vector<std::int64_t> positions_of(const trace::Recording& recording,
                                       const std::vector<trace::BufferId>& bound);

}  // namespace steptape::guards
