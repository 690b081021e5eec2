#pragma once

#include <vector>

#include "trace/compare/finding.h"
#include "trace/model.h"

namespace steptape::diff {

/// In which modules the memory that ops make differs: its bytes, and the most of them that live at
/// once. A buffer belongs to the module whose op made it, and lives from there to the last op that
/// uses it, or, where it outlives the step, to its end. Alignment is left out. The first stands for
/// the whole step.
std::vector<trace::Finding> memory_differences(const trace::Recording& a,
                                               const trace::Recording& b);

}  // namespace steptape::diff
