#pragma once

#include <vector>

#include "trace/finding.h"
#include "trace/stream_diff.h"

namespace steptape::trace {

/// Tensors that both steps read, that nobody tracks, and whose bytes differ: by their place among
/// those that no path leads to, "outside[0]", or by the op that reads them first. Single numbers
/// that the host made are scalars of their ops and not told here.
std::vector<Finding> constant_differences(const OpStream& a, const OpStream& b,
                                          const Alignment& alignment);

}  // namespace steptape::trace
