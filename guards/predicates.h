#pragma once

#include <span>

#include "steptape/verdict.h"
#include "trace/model.h"

namespace steptape::guards {

/// Whether all predicates of `recording` hold for these values of its leaves.
Verdict check_predicates(const trace::Recording& recording, std::span<const double> leaves);

}  // namespace steptape::guards
