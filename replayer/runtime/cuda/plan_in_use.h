#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "replayer/runtime/cuda/capture.h"
#include "replayer/runtime/cuda/host_transfers.h"
#include "replayer/runtime/cuda/plan/device_plan.h"

namespace steptape::replayer::cuda {

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

}  // namespace steptape::replayer::cuda
