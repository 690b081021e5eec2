#pragma once

#include <string>

#include "tools/diff_text.h"
#include "trace/diff.h"

namespace steptape::tools {

/// How long the ops of a step took on both sides: a line for all of them, then one for each module,
/// what differs most first. Empty where neither side says.
std::string op_times_text(const trace::StepDiff& step, Detail detail);

}  // namespace steptape::tools
