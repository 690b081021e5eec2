#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "trace/formula.h"

/// What two sequences have in common, whatever stands in them: items are equal when their numbers
/// are.
namespace steptape::diff {

/// Item `a` of the first sequence and item `b` of the second.
struct Match {
  trace::Index a = trace::kNone;
  trace::Index b = trace::kNone;
  friend bool operator==(const Match&, const Match&) = default;
};

/// Equal items that stand in the same order in both, ascending. As many as there can be where at
/// most 1,024 items have no match (Myers, "An O(ND) Difference Algorithm and Its Variations",
/// 1986); beyond, items that stand once in either sequence are matched first ("patience"), and what
/// lies between them by the path that got furthest. Takes memory and time linear in the items and
/// quadratic only in those 1,024.
std::vector<Match> common_subsequence(std::span<const std::uint64_t> a,
                                      std::span<const std::uint64_t> b);

/// Positions of a longest strictly increasing subsequence, ascending.
std::vector<trace::Index> longest_increasing(std::span<const trace::Index> values);

}  // namespace steptape::diff
