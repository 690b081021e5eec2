#pragma once

#include <cstdint>
#include <vector>

#include "trace/model.h"

namespace steptape::replayer {

/// A number that a step is known to compute, or what torch makes of one: a backward formula holds
/// `exponent - 1` or `1 / (1 - p)` of what the forward op was given.
struct Derived {
  trace::Formula formula;  ///< over the leaves of the second recording
  double before, now;
  bool is_integer;             ///< the numbers that it follows from are integers
  std::int64_t known_at = -1;  ///< the op whose host read it waits for; -1: none
};

/// Those that differ between two recordings of one stream of ops: the leaves and formulas of `now`.
std::vector<Derived> derived_numbers(const trace::Recording& before, const trace::Recording& now);

/// What torch makes of `number`.
std::vector<Derived> made_of(const Derived& number);

}  // namespace steptape::replayer
