#pragma once

#include <ATen/core/Tensor.h>

#include <unordered_map>

#include "trace/model.h"

namespace steptape::replayer::cuda {

/// Gradients that lie in memory which each run writes again (Options::static_gradients), as the
/// user has them.
class GivenGradients {
 public:
  /// `own` is the plan's tensor; what is returned is the user's, on the same memory.
  at::Tensor give(trace::BufferId buffer, const at::Tensor& own);
  bool holds(trace::BufferId buffer) const { return given_.contains(buffer); }
  bool is_empty() const { return given_.empty(); }
  /// Before their memory is written again: what the user still holds keeps its bytes, in memory of
  /// its own.
  void move_out();

 private:
  std::unordered_map<trace::BufferId, at::Tensor> given_;
};

}  // namespace steptape::replayer::cuda
