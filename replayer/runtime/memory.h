#pragma once

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <vector>

#include "replayer/planner/program.h"

namespace steptape::replayer {

/// The plan's own tensors and what they lie on: one storage a buffer, one tensor a recorded tensor.
/// Bound storages do not own their bytes and point where the caller says; adopted ones change with
/// each run, captured ones with each capture.
class Memory {
 public:
  /// Allocates arena and constants.
  explicit Memory(const Program& program);
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  /// The plan's tensor of this id; undefined for kNoTensor.
  const at::Tensor& tensor(trace::TensorId id) const;
  /// A new tensor object, for the user, on what buffer and geometry are now.
  at::Tensor fresh_tensor(trace::TensorId id) const;
  /// As a fresh one, for the user as a gradient: what an earlier run gave, where nobody has kept or
  /// changed it since.
  at::Tensor gradient(trace::TensorId id);
  /// A copy, for the user, of a tensor on constant memory.
  at::Tensor copied_tensor(trace::TensorId id) const;

  void point_at(trace::BufferId buffer, void* address);
  void* address(trace::BufferId buffer) const;
  const c10::StorageImpl* storage(trace::BufferId buffer) const {
    return storages_[buffer].unsafeGetStorageImpl();
  }
  void adopt(trace::BufferId buffer, const c10::Storage& storage);
  /// Gives the buffer new memory, as ops get it; where nobody has kept what an earlier run made,
  /// that again. Throws c10::Error when memory is short.
  void make(trace::BufferId buffer);
  /// Lets go of an adopted or made storage; small ones that `make` made stay for the next run.
  void release(trace::BufferId buffer);
  /// Writes the trace's bytes again into constants that the plan writes.
  void refill(trace::BufferId constant);

 private:
  /// A gradient that a run gave.
  struct Given {
    trace::TensorId id = trace::kNoTensor;
    at::Tensor tensor;
  };

  bool is_ours_alone(trace::BufferId buffer) const;
  bool is_as_given(const Given& given) const;

  const trace::Recording& recording_;
  std::vector<c10::Storage> storages_;                    ///< by buffer
  std::vector<std::vector<trace::TensorId>> tensors_on_;  ///< by buffer
  std::vector<at::Tensor> tensors_;                       ///< by tensor
  std::vector<bool> stays_;                               ///< by buffer: made, and small
  std::vector<Given> given_;                              ///< by buffer, of those that stay
  at::Tensor undefined_;
  c10::Storage nothing_;
};

/// While it lives this thread calls ops as they were called below autograd: autograd, in-place
/// bookkeeping and autocast have had their turn when the step was recorded.
class BelowAutograd {
  at::AutoDispatchBelowADInplaceOrView below_;
  c10::impl::ExcludeDispatchKeyGuard autocast_{c10::autocast_dispatch_keyset};
};

}  // namespace steptape::replayer
