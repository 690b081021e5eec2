#pragma once

#include <string>
#include <utility>
#include <vector>

#include "live/objects.h"
#include "steptape/verdict.h"

namespace steptape::guards {

/// Guards optimizers: groups, the parameters in them, hyperparameters by their bits, state tensors.
class OptimizerGuard {
 public:
  OptimizerGuard(const live::Objects& objects, const live::Snapshot& snapshot);
  /// The optimizers must be alive (Objects::check_alive).
  Verdict check() const;

 private:
  struct Group {
    std::string path;  ///< "optimizer.param_groups[0]"
    std::vector<trace::NamedValue> hyperparameters;
    std::vector<const c10::TensorImpl*> parameters;
  };
  struct State {
    void* key;  ///< TensorImpl of the parameter, as the optimizer's map has it
    std::string path;
    std::vector<const c10::TensorImpl*> tensors;
  };
  struct Watched {
    std::string path;
    std::string type;
    torch::optim::Optimizer* optimizer;
    std::vector<Group> groups;
    std::vector<State> states;
    std::size_t state_size;
  };

  static Verdict check_group(const Watched& watched, const Group& group,
                             const torch::optim::OptimizerParamGroup& now);
  static Verdict check_states(const Watched& watched);

  std::vector<Watched> optimizers_;
};

}  // namespace steptape::guards
