#pragma once

#include <span>
#include <string>

#include "steptape/stats.h"

namespace steptape::replayer {

/// What explain() says of the plans of a step, lines that begin with spaces. `differences` says of
/// each what tells it from the first one, or nothing; it may be shorter.
std::string plan_lines(std::span<const PlanStats> plans,
                       std::span<const std::string> differences = {});

}  // namespace steptape::replayer
