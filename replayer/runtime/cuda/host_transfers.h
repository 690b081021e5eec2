#pragma once

#include <memory>
#include <unordered_map>

#include "replayer/runtime/cuda/plan/device_plan.h"
#include "replayer/runtime/cuda/plan/ring.h"

namespace steptape::replayer::cuda {

/// Whether it is memory of the host that the device writes and reads by itself.
bool is_pinned(const void* address);

/// Copies from the host that are done ahead of graphs, without a wait for the device: an eager copy
/// from pageable memory returns when the device has the bytes, after all that it was given before.
/// Here they go through pinned memory of the plan's own.
class HostTransfers {
 public:
  explicit HostTransfers(const DevicePlan& plan);

  /// Not from pinned memory: the device may be about to write that.
  /// Does the call in its place, on the current stream; false for one that is not a plain copy of
  /// as many bytes as the tensor spans.
  bool run(const Call& call);

 private:
  struct Transfer {
    trace::TensorId from = trace::kNoTensor;
    trace::TensorId to = trace::kNoTensor;
    std::size_t bytes = 0;
  };
  static std::optional<Transfer> transfer_of(const DevicePlan& plan, const Call& call);

  const DevicePlan& plan_;
  std::unordered_map<trace::Index, Transfer> transfers_;  ///< by op
  std::unique_ptr<RingMemory> memory_;
  Ring ring_;
};

}  // namespace steptape::replayer::cuda
