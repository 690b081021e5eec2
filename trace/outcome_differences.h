#pragma once

#include <vector>

#include "trace/finding.h"
#include "trace/model.h"

namespace steptape::trace {

/// In what two steps differ beside their ops: results, gradients at exit, values that they read or
/// return, where generators were set, effects on the host, optimizers stepped behind, and what
/// buffers that a path leads to are to the step. Both recordings must be valid.
std::vector<Finding> outcome_differences(const Recording& a, const Recording& b);

}  // namespace steptape::trace
