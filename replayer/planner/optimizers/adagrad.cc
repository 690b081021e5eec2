#include "replayer/planner/optimizers/optimizers.h"

namespace steptape::replayer {
namespace {

using trace::constant;

// torch/csrc/api/src/optim/adagrad.cpp, dense gradients.
void match_adagrad(Update& update) {
  const Slot gradient = update.decayed_gradient();
  const Slot sum =
      update.call("aten::addcmul_", {update.state("sum"), gradient, gradient, constant(1)});
  Slot root = update.call("aten::sqrt", {sum});
  root = update.call("aten::add_.Scalar", {root, update.hyperparameter("eps")});
  const trace::Formula decayed =
      update.hyperparameter("lr") /
      (constant(1) + (update.step_count() - constant(1)) * update.hyperparameter("lr_decay"));
  update.call("aten::addcdiv_", {update.parameter(), gradient, root, -decayed});
}

}  // namespace

const Lowering kAdagrad = {"torch::optim::Adagrad", &match_adagrad};

}  // namespace steptape::replayer
