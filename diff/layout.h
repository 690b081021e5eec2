#pragma once

#include <string>
#include <vector>

#include "trace/model.h"

namespace steptape::diff {

enum class LayoutAspect {
  kOptimizer,       ///< one of the two recordings lacks it, or it is of another type
  kGroup,           ///< a parameter is in another group, in none, or the group's order is another
  kHyperparameter,  ///< another value, down to type and bits, or only one side has it
  kState,           ///< only one side has the entry, or it is of another kind
  kTensor,          ///< a tensor of the state has another dtype or shape
};

/// One respect in which two recordings' optimizers are laid out differently.
struct LayoutDifference {
  LayoutAspect aspect;
  /// "model.fc1.weight", "optimizer.param_groups[0].lr", "optimizer.state[model.fc1.weight].step"
  std::string path;
  std::string expected;  ///< in the first recording, in words; "absent"
  std::string found;     ///< in the second

  /// "optimizer.param_groups[0].lr: 0x1p-1 (0.5) → 0x1p-2 (0.25)"
  std::string text() const { return path + ": " + expected + " → " + found; }
};

/// All differences, optimizer by optimizer as the first recording has them, then those that only
/// the second has. Numbers in the state, such as step counts, may differ. Both recordings must be
/// valid.
std::vector<LayoutDifference> layout_differences(const trace::Recording& a,
                                                 const trace::Recording& b);

}  // namespace steptape::diff
