#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "trace/model.h"

namespace steptape::replayer {

/// Hyperparameters, counters, arguments, host values and host reads by the paths that leaves of
/// them have.
using Numbers = std::unordered_map<std::string, double>;

/// What they were when the recording was made: at entry, reads as they came.
Numbers numbers_at(const trace::Recording& recording);

/// Of each of Recording::leaves the host read that gives it, by its position in Recording::reads;
/// kNone: it is none of those.
std::vector<trace::Index> reads_of_leaves(const trace::Recording& recording);

}  // namespace steptape::replayer
