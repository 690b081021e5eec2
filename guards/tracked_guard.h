#pragma once

#include <span>
#include <string>
#include <vector>

#include "live/hooks.h"
#include "live/objects.h"
#include "steptape/verdict.h"
#include "trace/model.h"

namespace steptape::guards {

/// Guards tracked tensors and gradients at entry: geometry, dtype, device, requires_grad, address
/// remainder, hooks, None or defined; and finds their memory, which may have moved.
class TrackedGuard {
 public:
  /// `snapshot` was taken right after `recording` was made; its tensors are those of
  /// `recording.tracked`, in order. Throws Error (internal) when they are not.
  TrackedGuard(const trace::Recording& recording, const std::vector<std::int64_t>& position,
               const live::Snapshot& snapshot);

  Verdict check(std::span<void*> memory) const;

  /// The live tensor that lies on a buffer, for results that are that tensor; undefined when none
  /// does.
  at::Tensor live_tensor(trace::BufferId buffer) const;
  /// The tensor of Recording::tracked at `position`; of a gradient, its parameter.
  at::Tensor tensor(std::size_t position) const {
    return at::Tensor(watched_[position].tensor.lock());
  }
  /// Where the parameter of a path stands in Recording::tracked; throws Error (internal) when there
  /// is none.
  std::size_t position_of(const std::string& path) const;

 private:
  struct Watched {
    std::string path;
    /// Of a gradient: the parameter. Weakly, so that a plan keeps none alive and none seems used by
    /// others.
    c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl> tensor;
    bool is_gradient;
    const trace::Tensor* geometry;  ///< null: a gradient that was None
    const trace::Buffer* buffer;
    at::ScalarType dtype;
    bool requires_grad;
    live::Hooks hooks;
    std::int64_t position;
  };

  static Verdict check_one(const Watched& watched, std::span<void*> memory);

  std::vector<Watched> watched_;
};

}  // namespace steptape::guards
