#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "replayer/program.h"

namespace steptape::replayer::cpu {

/// The plan's own tensors and what they lie on: one storage a buffer, one tensor a recorded tensor.
/// Bound storages do not own their bytes and point where the caller says; adopted ones change with
/// each run.
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
  /// A copy, for the user, of a tensor on constant memory.
  at::Tensor copied_tensor(trace::TensorId id) const;

  void point_at(trace::BufferId buffer, void* address);
  void* address(trace::BufferId buffer) const;
  /// The first tensor on a buffer.
  trace::TensorId first_on(trace::BufferId buffer) const { return tensors_on_[buffer].front(); }
  void adopt(trace::BufferId buffer, const c10::Storage& storage);
  /// Gives the buffer new memory, as ops get it. Throws c10::Error when memory is short.
  void make(trace::BufferId buffer);
  /// Lets go of an adopted or made storage.
  void release(trace::BufferId buffer);
  /// Writes the trace's bytes again into constants that the plan writes.
  void refill(trace::BufferId constant);

 private:
  void set_storage(trace::BufferId buffer, const c10::Storage& storage);

  const trace::Recording& recording_;
  std::vector<c10::Storage> storages_;                    ///< by buffer
  std::vector<std::vector<trace::TensorId>> tensors_on_;  ///< by buffer
  std::vector<at::Tensor> tensors_;                       ///< by tensor
  at::Tensor undefined_;
  c10::Storage nothing_;
};

}  // namespace steptape::replayer::cpu
