#include "replayer/planner/optimizers/optimizers.h"

namespace steptape::replayer {
namespace {

using trace::constant;

// torch/csrc/api/src/optim/rmsprop.cpp; it asks `momentum > 0`, not `!= 0`.
void match_rmsprop(Update& update) {
  const trace::Formula alpha = update.hyperparameter("alpha");
  const trace::Formula momentum = update.hyperparameter("momentum");
  const trace::Formula lr = update.hyperparameter("lr");
  const Slot gradient = update.decayed_gradient();
  Slot square = update.call("aten::mul_.Scalar", {update.state("square_avg"), alpha});
  square = update.call("aten::addcmul_", {square, gradient, gradient, constant(1) - alpha});
  Slot root = square;
  if (update.when(update.hyperparameter("centered"))) {
    Slot mean = update.call("aten::mul_.Scalar", {update.state("grad_avg"), alpha});
    mean = update.call("aten::add_.Tensor", {mean, gradient, constant(1) - alpha});
    root = update.call("aten::addcmul", {square, mean, mean, constant(-1)});
    root = update.call("aten::sqrt_", {root});
  } else {
    root = update.call("aten::sqrt", {square});
  }
  root = update.call("aten::add_.Scalar", {root, update.hyperparameter("eps")});
  if (update.when(trace::maximum(momentum, constant(0)))) {
    Slot buffer = update.call("aten::mul_.Scalar", {update.state("momentum_buffer"), momentum});
    buffer = update.call("aten::addcdiv_", {buffer, gradient, root});
    update.call("aten::add_.Tensor", {update.parameter(), buffer, -lr});
  } else {
    update.call("aten::addcdiv_", {update.parameter(), gradient, root, -lr});
  }
}

}  // namespace

const Lowering kRmsprop = {"torch::optim::RMSprop", &match_rmsprop};

}  // namespace steptape::replayer
