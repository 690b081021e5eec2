#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "live/objects.h"

namespace steptape::session {

/// What tracked objects held at one moment: the elements of their tensors (gradients too), numbers
/// in the state of optimizers, and generator states. Hyperparameters and training flags are the
/// program's and stay, as does what the step carries in places of the program.
class Checkpoint {
 public:
  explicit Checkpoint(const live::Objects& objects);

  /// Writes everything back in place. Returns the paths of tensors that are gone, undefined or of
  /// another shape by now: these are as they are.
  std::vector<std::string> put_back(const live::Objects& objects) const;

 private:
  std::vector<std::pair<std::string, at::Tensor>> tensors_;
  std::vector<std::pair<std::string, trace::Value>> numbers_;  ///< of optimizers, by path
  std::vector<std::pair<std::string, at::Tensor>> generators_;
};

}  // namespace steptape::session
