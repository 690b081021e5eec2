#include "replayer/planner/optimizers/optimizers.h"

namespace steptape::replayer {
namespace {

// torch/csrc/api/src/optim/sgd.cpp. The first step with momentum clones the gradient into the
// buffer instead; it creates state, so it is a warm-up and never planned from.
void match_sgd(Update& update) {
  const trace::Formula momentum = update.hyperparameter("momentum");
  Slot change = update.decayed_gradient();
  if (update.when(momentum)) {
    Slot buffer = update.state("momentum_buffer");
    buffer = update.call("aten::mul_.Scalar", {buffer, momentum});
    buffer = update.call("aten::add_.Tensor",
                         {buffer, change, trace::constant(1) - update.hyperparameter("dampening")});
    change = update.when(update.hyperparameter("nesterov"))
                 ? update.call("aten::add.Tensor", {change, buffer, momentum})
                 : buffer;
  }
  update.call("aten::add_.Tensor",
              {update.parameter(), change, trace::constant(-1) * update.hyperparameter("lr")});
}

}  // namespace

const Lowering kSgd = {"torch::optim::SGD", &match_sgd, false};

}  // namespace steptape::replayer
