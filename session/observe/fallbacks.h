#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "steptape/stats.h"
#include "steptape/verdict.h"

namespace steptape::session {

/// The guards that calls of a step fell back for, counted: one entry a guard, told apart by kind
/// and path. Holds the 64 that are met most, so that ever new paths cost no memory; where all are
/// met equally rarely, the newest.
class Fallbacks {
 public:
  /// Returns the entry as it is then.
  const CountedVerdict& count(const Verdict& verdict, std::uint64_t last_held);
  /// Most frequent first.
  std::vector<CountedVerdict> by_frequency() const;
  /// Calls, those of guards that are no longer held too.
  std::uint64_t total() const { return total_; }

 private:
  std::uint64_t total_ = 0;
  std::vector<CountedVerdict> entries_;  ///< the one that was met last is last
};

/// "shape: inputs[0].size(0): 64 → 17 (held until 3 calls ago)".
std::string text_of(const Verdict& verdict, std::uint64_t last_held);
/// The same of each variant: "variant 0: shape: ...; variant 1: ...".
std::string text_of(const std::vector<VariantVerdict>& verdicts);

}  // namespace steptape::session
