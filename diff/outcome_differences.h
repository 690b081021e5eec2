#pragma once

#include <vector>

#include "trace/compare/finding.h"
#include "trace/model.h"

namespace steptape::diff {

/// In what two steps differ beside their ops: results, gradients at exit, values that they read or
/// return, where generators were set, effects on the host, optimizers stepped behind, and what
/// buffers that a path leads to are to the step. Both recordings must be valid.
std::vector<trace::Finding> outcome_differences(const trace::Recording& a,
                                                const trace::Recording& b);

}  // namespace steptape::diff
