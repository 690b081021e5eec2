#pragma once

#include <cstdint>
#include <vector>

#include "steptape/stats.h"
#include "steptape/verdict.h"

namespace steptape::session {

struct Variant;

/// Why the variants that one call asked did not fit it: a guard failed, or a run was undone. Empty,
/// at no cost, when the first one that is asked fits.
class Mismatches {
 public:
  /// A call begins: the one of this number.
  void begin(std::uint64_t call);
  /// What is said of a variant twice in a call counts as it was said last.
  void add(const Variant& variant, Verdict verdict);
  /// In the order in which they were found out.
  const std::vector<VariantVerdict>& all() const { return all_; }

 private:
  std::uint64_t call_ = 0;
  std::vector<VariantVerdict> all_;
};

}  // namespace steptape::session
