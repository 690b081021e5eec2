#pragma once

#include <string>
#include <vector>

#include "trace/compare/finding.h"
#include "trace/model.h"

namespace steptape::diff {

/// One respect in which two recordings' optimizers are laid out differently.
/// "model.fc1.weight", "optimizer.param_groups[0].lr", "optimizer.state[model.fc1.weight].step"
struct LayoutDifference : trace::Finding {
  /// Of the optimizer itself, its type or its groups; not of hyperparameters or the state.
  bool is_of_groups = false;
};

/// All differences, optimizer by optimizer as the first recording has them, then those that only
/// the second has. Numbers in the state, such as step counts, may differ. Both recordings must be
/// valid.
std::vector<LayoutDifference> layout_differences(const trace::Recording& a,
                                                 const trace::Recording& b);

}  // namespace steptape::diff
