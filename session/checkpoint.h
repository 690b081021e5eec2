#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "live/objects.h"

namespace steptape::session {

/// What tracked objects held at one moment: the elements of their tensors (gradients too), step
/// counters and generator states. Hyperparameters and training flags are the program's and stay.
class Checkpoint {
 public:
  explicit Checkpoint(const live::Objects& objects);

  /// Writes everything back in place. Returns the paths of tensors that are gone, undefined or of
  /// another shape by now: these are as they are.
  std::vector<std::string> put_back(const live::Objects& objects) const;

 private:
  std::vector<std::pair<std::string, at::Tensor>> tensors_;
  std::vector<std::pair<std::string, std::int64_t>> counters_;  ///< by path of the state
  std::vector<std::pair<std::string, at::Tensor>> generators_;
};

}  // namespace steptape::session
