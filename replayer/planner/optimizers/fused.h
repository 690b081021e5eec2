#pragma once

#include <optional>
#include <vector>

#include "trace/model.h"

namespace steptape::replayer {

/// A recording whose updates are done by LibTorch's fused kernels.
struct Fused {
  trace::Recording recording;
  /// Buffers that a fused kernel writes: their bits may differ from the eager step's in the last
  /// places.
  std::vector<trace::BufferId> approximate;
};

/// Replaces the updates of each parameter group by one call of `aten::_fused_adam_`,
/// `_fused_adamw_` or `_fused_adagrad_`, with the same hyperparameters and step counts. Buffer and
/// tensor ids stay. Groups whose updates do not stand together, or are not all float32 or all
/// float64 on the CPU, are left as they are; none if that is true of all. On a GPU the kernels work
/// with 1 - beta in single precision (ATen/native/cuda/fused_adam_utils.cuh), which leaves some 200
/// units in the last place: more than a fused update may be off.
std::optional<Fused> fuse(const trace::Recording& recording);

}  // namespace steptape::replayer
