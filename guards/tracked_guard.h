#pragma once

#include <span>
#include <string>
#include <vector>

#include "guards/tensor_facts.h"
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

  /// Where a tensor that lies on a buffer stands in Recording::tracked; -1 when none does.
  std::int64_t position_on(trace::BufferId buffer) const;
  /// The tensor of Recording::tracked at `position`; of a gradient, its parameter.
  at::Tensor tensor(std::size_t position) const {
    return at::Tensor(watched_[position].tensor.lock());
  }
  /// The same, without a handle: of one that a check has just found alive.
  c10::TensorImpl& alive(std::size_t position) const {
    return *watched_[position].tensor._unsafe_get_target();
  }
  /// The tensor of Recording::tracked at `position`, gradients too.
  at::Tensor tensor_at(std::size_t position) const {
    const at::Tensor owner = tensor(position);
    return watched_[position].is_gradient ? owner.grad() : owner;
  }
  /// Where the parameter of a path stands in Recording::tracked; throws Error (internal) when there
  /// is none.
  std::size_t position_of(const std::string& path) const;

 private:
  struct Watched {
    std::string path;
    /// Of a gradient: the parameter. Weakly, so that a plan keeps none alive and none seems used by
    /// others.
    TensorFacts::Weak tensor;
    bool is_gradient;
    const trace::Tensor* geometry;  ///< null: a gradient that was None
    const trace::Buffer* buffer;
    at::ScalarType dtype;
    bool requires_grad;
    live::Hooks hooks;
    std::int64_t position;
  };

  /// Looks again at one that is not as its fact has it, and says what differs.
  static Verdict check_one(const Watched& watched, std::span<void*> memory);

  std::vector<Watched> watched_;
  mutable TensorFacts facts_;  ///< one for each
};

}  // namespace steptape::guards
