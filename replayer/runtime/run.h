#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

#include "trace/model.h"

namespace steptape::replayer {

/// What an op left elsewhere, which it is to leave in a run too, whatever it does there: an op that
/// leaves other bits each time, so that what follows from it can be compared bit for bit.
struct Imposed {
  trace::Index op;               ///< position in the recording
  std::vector<at::Tensor> left;  ///< see live::left_tensors
  /// How far what it left by itself was from that, at most (live::relative_difference); none: the
  /// run did not come by the op.
  std::optional<double> difference = {};
};

}  // namespace steptape::replayer
