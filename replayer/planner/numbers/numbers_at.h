#pragma once

#include <string>
#include <unordered_map>

#include "trace/model.h"

namespace steptape::replayer {

/// Hyperparameters, counters, arguments, host values and host reads by the paths that leaves of
/// them have.
using Numbers = std::unordered_map<std::string, double>;

/// What they were when the recording was made: at entry, reads as they came.
Numbers numbers_at(const trace::Recording& recording);

}  // namespace steptape::replayer
