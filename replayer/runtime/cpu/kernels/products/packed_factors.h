#pragma once

#include <vector>

#include "replayer/planner/program.h"
#include "replayer/runtime/call.h"
#include "replayer/runtime/memory.h"

namespace steptape::replayer::cpu {

/// Products that are multiplied here and have the same second factor, such as the weight of a cell
/// that each step of a sequence goes through, pack it once a run: the first of them does, and the
/// others read it. `calls` have their kernels and are in the order of the run.
void share_packed_factors(const Program& program, const Memory& memory, std::vector<Call>& calls);

}  // namespace steptape::replayer::cpu
