#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <utility>
#include <vector>

#include "trace/model.h"

namespace steptape::replayer::cuda {

/// Gradients that lie in memory which graphs write again (Options::static_gradients), as the user
/// has them: several may lie in one buffer, on one storage.
class GivenGradients {
 public:
  /// `own` is the tensor of `plan`; what is returned is the user's, on the same memory.
  at::Tensor give(const void* plan, trace::BufferId buffer, const at::Tensor& own);
  bool holds(const void* plan, trace::BufferId buffer) const {
    return given_.contains({plan, buffer});
  }
  bool is_empty() const { return given_.empty(); }
  /// Before memory of the graphs is written again: what the user still holds keeps its bytes, in
  /// memory of its own.
  void move_out();

 private:
  struct Given {
    c10::Storage storage;
    std::vector<at::Tensor> gradients;
    bool is_held() const;
  };
  std::map<std::pair<const void*, trace::BufferId>, Given> given_;
};

}  // namespace steptape::replayer::cuda
