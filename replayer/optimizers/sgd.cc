#include "replayer/optimizers/optimizers.h"

namespace steptape::replayer {

// torch/csrc/api/src/optim/sgd.cpp: `grad.add(p, wd)`, `buf.mul_(momentum).add_(grad, 1 -
// dampening)`, `p.add_(grad, -lr)`. The first step with momentum clones the gradient instead; it
// creates state, so it is a warm-up and never planned from.
const OptimizerKnowledge kSgd = {"torch::optim::SGD", ""};

}  // namespace steptape::replayer
