#pragma once

#include <vector>

#include "trace/compare/finding.h"
#include "trace/model.h"

namespace steptape::diff {

/// In what the modules of two recordings differ: which there are, their types, training flags,
/// options and other paths, which of their calls issued ops, and the order of those. Both must be
/// valid.
std::vector<trace::Finding> module_differences(const trace::Recording& a,
                                               const trace::Recording& b);

}  // namespace steptape::diff
