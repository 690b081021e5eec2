#pragma once

#include <span>
#include <string>
#include <vector>

#include "steptape/guard_kind.h"
#include "trace/compare/finding.h"
#include "trace/model.h"

namespace steptape::trace {

/// A guard of one recording that does not hold as the other entered: "inputs[0].size(0): 64 → 17".
struct GuardDifference : Finding {
  GuardKind kind = GuardKind::kNone;
  friend bool operator==(const GuardDifference&, const GuardDifference&) = default;
};

/// What tells two variants of a step apart, in the order in which guards are checked; numbers that
/// formulas follow in both do not. Of an object that one recording alone has, the first guard
/// stands for all, and none where another guard of the object differs. Both must be valid.
std::vector<GuardDifference> guard_differences(const Recording& a, const Recording& b);

/// "inputs[0].size(0) 64 → 17, model.training true → false and 12 more": at most `most` of them in
/// words, one at least. "nothing that a recording holds" when there is none.
std::string text_of(std::span<const GuardDifference> differences, std::size_t most);

}  // namespace steptape::trace
