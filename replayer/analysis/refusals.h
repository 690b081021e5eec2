#pragma once

#include <vector>

#include "steptape/refusal.h"
#include "trace/model.h"

namespace steptape::replayer {

/// Why `recording` cannot become a plan in this process: what the recorder saw, operators that are
/// not here, optimizers without a lowering, memory that no backend can give. Empty: it can.
std::vector<Refusal> refusals_of(const trace::Recording& recording);

}  // namespace steptape::replayer
