#pragma once

#include <vector>

#include "diff/stream_diff.h"
#include "trace/compare/finding.h"

namespace steptape::diff {

/// Tensors that both steps read, that nobody tracks, and whose bytes differ: by their place among
/// those that no path leads to, "outside[0]", or by the op that reads them first. Single numbers
/// that the host made are scalars of their ops and not told here.
std::vector<trace::Finding> constant_differences(const OpStream& a, const OpStream& b,
                                                 const Alignment& alignment);

}  // namespace steptape::diff
