#pragma once

#include <vector>

#include "diff/stream_diff.h"
#include "trace/compare/finding.h"

namespace steptape::diff {

/// Scalars of paired ops that one side alone has a formula for, or another one; conditions under
/// which a step issues its ops; numbers of optimizers' state that it advances otherwise. Formulas
/// of the second recording name ops by their partners in the first. "op 17 aten::add_.Tensor alpha:
/// -lr → -0.1"
std::vector<trace::Finding> formula_differences(const OpStream& a, const OpStream& b,
                                                const Alignment& alignment);

}  // namespace steptape::diff
