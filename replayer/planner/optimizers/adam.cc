#include "replayer/planner/optimizers/optimizers.h"

namespace steptape::replayer {
namespace {

using trace::constant;

/// What Adam and AdamW share: moments, bias corrections, and the parameter's change by `gradient`.
void match_moments(Update& update, Slot gradient) {
  const trace::Formula beta1 = update.hyperparameter("betas[0]");
  const trace::Formula beta2 = update.hyperparameter("betas[1]");
  const trace::Formula t = update.step_count();
  Slot mean = update.call("aten::mul_.Scalar", {update.state("exp_avg"), beta1});
  mean = update.call("aten::add_.Tensor", {mean, gradient, constant(1) - beta1});
  Slot square = update.call("aten::mul_.Scalar", {update.state("exp_avg_sq"), beta2});
  square = update.call("aten::addcmul_", {square, gradient, gradient, constant(1) - beta2});
  if (update.when(update.hyperparameter("amsgrad"))) {
    const Slot largest = update.state("max_exp_avg_sq");
    square = update.call("aten::maximum.out", {square, largest, largest});
  }
  Slot root = update.call("aten::sqrt", {square});
  root = update.call("aten::div.Scalar",
                     {root, trace::square_root(constant(1) - trace::power(beta2, t))});
  root = update.call("aten::add_.Scalar", {root, update.hyperparameter("eps")});
  const trace::Formula size = update.hyperparameter("lr") / (constant(1) - trace::power(beta1, t));
  update.call("aten::addcdiv_", {update.parameter(), mean, root, -size});
}

// torch/csrc/api/src/optim/adam.cpp
void match_adam(Update& update) { match_moments(update, update.decayed_gradient()); }

// torch/csrc/api/src/optim/adamw.cpp
void match_adamw(Update& update) {
  if (update.when(update.hyperparameter("weight_decay"))) {
    const trace::Formula shrink =
        constant(1) - update.hyperparameter("lr") * update.hyperparameter("weight_decay");
    update.call("aten::mul_.Scalar", {update.parameter(), shrink});
  }
  match_moments(update, update.gradient());
}

}  // namespace

const Lowering kAdam = {"torch::optim::Adam", &match_adam};
const Lowering kAdamW = {"torch::optim::AdamW", &match_adamw};

}  // namespace steptape::replayer
