#pragma once

#include <string_view>
#include <vector>

#include "trace/model.h"

namespace steptape::tools {

enum class StepPart : std::uint8_t { kForward, kBackward, kUpdate };

/// "forward", "backward", "update"
std::string_view name_of(StepPart part) noexcept;

/// One for each of Recording::ops. Backward ops are those that the recording calls so. Of the
/// others, ops in the scope of an optimizer's step are the update. A recording without such scopes
/// has its update from the first op that no module issued and that writes a parameter or optimizer
/// state up to the last one.
std::vector<StepPart> parts_of(const trace::Recording& recording);

}  // namespace steptape::tools
