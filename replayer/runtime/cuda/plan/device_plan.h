#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "replayer/planner/analysis/writes.h"
#include "replayer/planner/program.h"
#include "replayer/runtime/call.h"
#include "replayer/runtime/calls.h"
#include "replayer/runtime/cuda/plan/grouping.h"
#include "replayer/runtime/cuda/plan/segments.h"
#include "replayer/runtime/host_numbers.h"
#include "replayer/runtime/memory.h"
#include "replayer/runtime/seeks.h"
#include "replayer/runtime/undo.h"

namespace steptape::replayer::cuda {

/// Why a group cannot go on.
constexpr const char* kOtherNumbers = "ops that are done together take numbers that differ now";

/// The call of a `_foreach_` operator in the place of several calls.
class GroupedCall {
 public:
  /// `members` are the calls of the group's ops; they must outlive it.
  GroupedCall(const Group& group, std::vector<const Call*> members);

  const std::vector<trace::Index>& ops() const { return ops_; }
  std::span<const Call* const> members() const { return members_; }
  Call& call() { return call_; }
  const Call& call() const { return call_; }

  /// A number of the call.
  struct Number {
    std::size_t argument = 0;
    ForeachArgument from;  ///< where the members have it
  };
  const std::vector<Number>& numbers() const { return numbers_; }
  /// Takes the numbers that the members have now. False, with nothing taken, where they do not all
  /// have the same ones.
  bool take_numbers();
  /// What of the results on `stack`, which the call left there, each member would have left.
  std::vector<torch::jit::Stack> split(const torch::jit::Stack& stack) const;

 private:
  std::vector<trace::Index> ops_;
  std::vector<const Call*> members_;
  Call call_;
  std::vector<Number> numbers_;
  at::ScalarType dtype_;
};

/// What was found out about ops of a plan: how they are not to be done.
struct Exceptions {
  std::vector<KeptOut> kept_out;    ///< of graphs
  std::vector<trace::Index> alone;  ///< in no group
};

/// A recording planned for a device, all but its graphs: which calls are made in which segment, on
/// which memory. Makes no call of CUDA but to allocate, and to try operators the first time that a
/// process plans with them (see agrees).
struct DevicePlan {
  /// Throws Error (unsupported) for what no plan on a device can hold.
  DevicePlan(std::shared_ptr<const trace::Recording> recording, const GeneratorOf& generator,
             const Exceptions& exceptions);
  DevicePlan(const DevicePlan&) = delete;
  DevicePlan& operator=(const DevicePlan&) = delete;

  const trace::Recording& recording() const { return *program.recording; }
  Call& call_of(trace::Index op) { return calls.calls[position_of[op]]; }
  const Call& call_of(trace::Index op) const { return calls.calls[position_of[op]]; }
  /// The group that the op is in; null: it is in none.
  GroupedCall* group_with(trace::Index op) {
    return group_of[op] == trace::kNone ? nullptr : &groups[group_of[op]];
  }

  Program program;
  Writes writes;
  std::vector<Segment> segments;
  Memory memory;
  Calls calls;
  Bound bound;
  std::optional<HostNumbers> numbers;
  std::optional<Seeks> seeks;  ///< by segment
  CallResults results;
  std::vector<std::size_t> position_of;  ///< by op: in `calls`
  std::vector<GroupedCall> groups;
  std::vector<trace::Index> group_of;                ///< by op: in `groups`, or kNone
  std::vector<std::vector<trace::Index>> groups_in;  ///< by segment
  /// Captured buffers whose memory another one may have after an op; by op.
  std::vector<std::vector<trace::BufferId>> freed_after;
  /// Adopted buffers that a run lets go of after a segment; by segment.
  std::vector<std::vector<trace::BufferId>> released_after;
  /// The first segment after which nothing but a want of memory can end a run.
  std::size_t first_decided = 0;

 private:
  void make_groups(const std::vector<trace::Index>& alone);
  void add_default_generator(const GeneratorOf& generator);
  void choose_what_is_undone();
  void choose_when_memory_is_free();
};

}  // namespace steptape::replayer::cuda
