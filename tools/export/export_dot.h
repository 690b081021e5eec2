#pragma once

#include <string>

#include "tools/cli/trace_choice.h"

namespace steptape::tools {

/// A recording as a graph in the DOT language: ops in boxes of the modules that issued them, and an
/// edge from each op to those that read what it wrote. Buffers that exist before the step and that
/// an op reads first are ellipses.
std::string export_dot(const ChosenRecording& chosen);

}  // namespace steptape::tools
