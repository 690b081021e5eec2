#pragma once

#include <string>

#include "steptape/player.h"

namespace steptape::tools {

/// The step of this name, or the only one. Throws Error (invalid_argument) that lists the steps.
PlayerStep choose_step(Player& player, const std::string& wanted);

/// As many threads as the step was recorded with: its guards ask for them.
void use_recorded_threads(const PlayerStep& step);

}  // namespace steptape::tools
