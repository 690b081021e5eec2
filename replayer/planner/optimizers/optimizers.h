#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "replayer/planner/optimizers/update.h"
#include "trace/model.h"

/// What is known about how each optimizer type computes the numbers of its ops. The order of
/// operations is that of the eager code, since it decides the last bits.
namespace steptape::replayer {

struct Lowering {
  std::string_view type;     ///< OptimizerLayout::type
  void (*match)(Update&);    ///< the update of one parameter
  bool counts_steps = true;  ///< whether each update advances a counter that users see
};

/// Null for a type that none is known of.
const Lowering* lowering_of(const std::string& type);

/// Whether the numbers of such an optimizer's updates are known (OptimizerLayout::type).
bool is_known_optimizer(const std::string& type);
/// The name of the step that steps the optimizer of this path and does nothing else.
std::string update_step_of(const std::string& path);

/// Finds the updates of every tracked optimizer in `recording` and writes down what their numbers
/// follow from: leaves, formulas, scalars, predicates, advances. What cannot be accounted for
/// becomes a refusal: an update that is not the one of its type, or whose formulas do not give the
/// recorded bits (optimizer_unsupported); a parameter that other ops update from its gradient
/// (untracked_write).
void bind_optimizers(trace::Recording& recording);

/// What a plan from this recording would freeze: an optimizer that wrote and has no formulas.
void refuse_optimizers(const trace::Recording& recording, std::vector<Refusal>& refusals);

}  // namespace steptape::replayer
