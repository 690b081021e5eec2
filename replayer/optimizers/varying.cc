#include "replayer/optimizers/optimizers.h"

namespace steptape::replayer {

// torch/csrc/api/src/optim/*.cpp; the table of all scalars stands in
// docs/refusals.md#optimizer_unsupported
const std::vector<OptimizerKnowledge> kVarying = {
    {"torch::optim::Adam", "its bias corrections follow the step count"},
    {"torch::optim::AdamW", "its bias corrections follow the step count"},
    {"torch::optim::Adagrad", "its learning rate decays with the step count"},
    {"torch::optim::RMSprop", "its scalars have no formula yet"},
    {"torch::optim::LBFGS", "its line search decides on values it reads"},
};

}  // namespace steptape::replayer
