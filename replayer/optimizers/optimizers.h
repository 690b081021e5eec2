#pragma once

#include <vector>

#include "steptape/refusal.h"
#include "trace/model.h"

/// What is known about how each optimizer type computes the scalars of its ops. One file an
/// optimizer.
namespace steptape::replayer {

/// Why the scalars of an optimizer of this type may not stand in a plan as they were recorded;
/// empty text when they may, because each of them is a hyperparameter, which a guard holds.
struct OptimizerKnowledge {
  const char* type;  ///< OptimizerLayout::type
  const char* why_not;
};

/// sgd.cc: lr, momentum, dampening and weight decay enter the ops as they stand (`-lr`, `1 -
/// dampening`); nothing depends on the step count once momentum buffers exist.
extern const OptimizerKnowledge kSgd;
/// varying.cc: optimizers whose scalars follow the step count or tensor values.
extern const std::vector<OptimizerKnowledge> kVarying;

/// Refuses every tracked optimizer that wrote something and whose scalars are not all
/// hyperparameters.
void refuse_optimizers(const trace::Recording& recording, std::vector<Refusal>& refusals);

/// Refuses a step that updates a parameter with a gradient while no tracked optimizer holds it: the
/// update's scalars would be frozen without a guard.
void refuse_unowned_updates(const trace::Recording& recording, std::vector<Refusal>& refusals);

}  // namespace steptape::replayer
