#pragma once

#include <span>

#include "steptape/verdict.h"
#include "trace/model.h"

namespace steptape::guards {

/// Whether a number that a formula reads may be `found` where it was `expected` while recording: of
/// the same kind, not a bool, both exact as doubles, and finite if that was.
bool may_follow(const trace::Value& expected, const trace::Value& found);

/// Whether all predicates of `recording` hold for these values of its leaves.
Verdict check_predicates(const trace::Recording& recording, std::span<const double> leaves);

/// The verdict on one whose formula gives `value`, and must not.
Verdict predicate_mismatch(const trace::Recording& recording, const trace::Predicate& predicate,
                           double value);

}  // namespace steptape::guards
