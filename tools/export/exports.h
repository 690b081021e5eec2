#pragma once

#include <string>

#include "tools/cli/trace_choice.h"

namespace steptape::tools {

/// A recording as comma-separated values (RFC 4180): a line of titles, then one for each op.
/// Control characters of names are escaped, so that an op is one line; a cell that a spreadsheet
/// would take for a formula begins with an apostrophe.
std::string export_csv(const ChosenRecording& chosen);

/// A recording as a graph in the DOT language: ops in boxes of the modules that issued them, and an
/// edge from each op to those that read what it wrote. Buffers that exist before the step and that
/// an op reads first are ellipses.
std::string export_dot(const ChosenRecording& chosen);

/// Each op takes so long in the timeline of a recording without times.
inline constexpr std::uint64_t kNanosecondsAnOp = 1000;

/// A recording as a trace that the Perfetto UI opens: a track each for forward, backward and
/// update, ops in order below the module calls that issued them, as long as they took where the
/// recording says so, and a counter of the bytes of temporaries that are alive.
std::string export_perfetto(const ChosenRecording& chosen);

}  // namespace steptape::tools
