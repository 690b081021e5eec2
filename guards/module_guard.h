#pragma once

#include <string>
#include <vector>

#include "live/objects.h"
#include "steptape/verdict.h"

namespace steptape::guards {

/// Guards the trees of tracked modules: training flags, and which sub-modules, parameters and
/// buffers are registered where.
class ModuleGuard {
 public:
  explicit ModuleGuard(const live::Snapshot& snapshot);
  /// The root modules must be alive (Objects::check_alive).
  Verdict check() const;

 private:
  struct Node {
    std::string path;
    const torch::nn::Module* module;
    bool training;
    std::vector<std::pair<std::string, const c10::TensorImpl*>> parameters;
    std::vector<const c10::TensorImpl*> buffers;
    /// Weakly, so that another module at the address of a dead one is not taken for it.
    std::vector<std::weak_ptr<torch::nn::Module>> children;
  };

  static Verdict check_node(const Node& node);
  static Verdict check_parameters(const Node& node);

  /// Parents before children, so that a child's address is known to be good before it is looked at.
  std::vector<Node> nodes_;
};

}  // namespace steptape::guards
