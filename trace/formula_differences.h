#pragma once

#include <vector>

#include "trace/finding.h"
#include "trace/stream_diff.h"

namespace steptape::trace {

/// Scalars of paired ops that one side alone has a formula for, or another one; conditions under
/// which a step issues its ops; numbers of optimizers' state that it advances otherwise. Formulas
/// of the second recording name ops by their partners in the first. "op 17 aten::add_.Tensor alpha:
/// -lr → -0.1"
std::vector<Finding> formula_differences(const OpStream& a, const OpStream& b,
                                         const Alignment& alignment);

}  // namespace steptape::trace
