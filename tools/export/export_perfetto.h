#pragma once

#include <string>

#include "tools/cli/trace_choice.h"

namespace steptape::tools {

/// Each op takes so long in the timeline of a recording without times.
inline constexpr std::uint64_t kNanosecondsAnOp = 1000;

/// A recording as a trace that the Perfetto UI opens: a track each for forward, backward and
/// update, ops in order below the module calls that issued them, as long as they took where the
/// recording says so, and a counter of the bytes of temporaries that are alive.
std::string export_perfetto(const ChosenRecording& chosen);

}  // namespace steptape::tools
