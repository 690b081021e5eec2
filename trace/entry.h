#pragma once

#include "trace/model.h"

namespace steptape::trace {

/// Whether two recordings were entered in the same way, so that one plan could serve both: inputs
/// by geometry and value, tracked tensors, gradients None or defined, training flags,
/// hyperparameters, ambient facts. What the step then did is not looked at: first_difference does
/// that.
bool same_entry(const Recording& a, const Recording& b);

}  // namespace steptape::trace
