#pragma once

#include "trace/model.h"

namespace steptape::trace {

/// How numbers that the caller passes, and host values, are compared.
enum class Numbers {
  kEqual,
  kAny,  ///< they may differ: a formula may account for it
};

/// Whether two recordings were entered in the same way, so that one plan could serve both: inputs
/// by geometry and value, tracked tensors, gradients None or defined, training flags,
/// predicates, hyperparameters that have no formulas, ambient facts. What the step then did is not
/// looked at: first_difference does that.
bool same_entry(const Recording& a, const Recording& b, Numbers numbers = Numbers::kEqual);

}  // namespace steptape::trace
