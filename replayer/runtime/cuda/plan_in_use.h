#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "replayer/runtime/cuda/capture.h"
#include "replayer/runtime/cuda/plan/device_plan.h"
#include "replayer/runtime/cuda/plan/ring.h"
#include "replayer/runtime/cuda/plan/static_memory.h"
#include "steptape/stats.h"

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

/// A plan with the graphs that were captured for it, and what was found out about its ops. It is
/// made anew, and its graphs are gone, where an op turns out to fit into no graph or no group.
class PlanInUse {
 public:
  /// Throws what DevicePlan does, here and where a plan is made anew.
  PlanInUse(std::shared_ptr<const trace::Recording> recording, GeneratorOf generator);

  DevicePlan& plan() { return *plan_; }
  const DevicePlan& plan() const { return *plan_; }
  HostTransfers& transfers() { return *transfers_; }
  Captured& captured() { return captured_; }
  const Captured& captured() const { return captured_; }

  /// An op could not be captured: no graph is to hold it, or no group. Throws Error (unsupported)
  /// where that was so for too many.
  void give_up_on(KeptOut op);
  /// Makes an op a call by itself, which leaves other bits each time it runs. False where no run
  /// does it so. The device must have done what graphs were launched for, here and below.
  bool set_apart(trace::Index op);
  /// Makes each op a call by itself that is in a group. False where there is no group.
  bool ungroup();

  /// A run begins: what the one before found out in its middle is heeded.
  void begin();
  /// Gives graphs the numbers of a run that begins. Why they do not hold for these; empty: they do.
  /// Where they do not, new ones are to be captured.
  std::string object_to_numbers();
  /// Whether that would be so.
  bool would_object_to_numbers();
  /// The same in mid-run for numbers that follow from what the segments before `segment` have read
  /// or made. Throws AssumptionViolated where its graph does not hold for them.
  void check_numbers(std::size_t segment);

 private:
  /// Of graphs; an op of a group is first taken out of that.
  void keep_out(KeptOut op);
  void leave_alone(const GroupedCall& group);
  void plan_again();
  std::optional<KeptOut> parted_group();
  std::optional<KeptOut> objection() const;

  std::shared_ptr<const trace::Recording> recording_;
  GeneratorOf generator_;
  Exceptions exceptions_;
  std::unique_ptr<DevicePlan> plan_;
  std::optional<HostTransfers> transfers_;
  Captured captured_;
  std::unordered_map<trace::Index, int> objections_;  ///< to numbers, by op
  std::optional<KeptOut> kept_out_next_;              ///< found in mid-run
};

/// "op 12 `aten::item` (model.fc1, train.cc:41): why".
std::string words_of(const DevicePlan& plan, trace::Index op, const std::string& why);

/// What a plan on a device is made of. `told` has what only its runs know.
PlanStats stats_of(const DevicePlan& plan, const Captured& captured, const StaticMemory& statics,
                   Gradients gradients, DeviceStats told);

}  // namespace steptape::replayer::cuda
