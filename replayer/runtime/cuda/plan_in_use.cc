#include "replayer/runtime/cuda/plan_in_use.h"

#include <algorithm>
#include <utility>

#include "guards/mismatch.h"
#include "replayer/runtime/cuda/device_stats.h"

namespace steptape::replayer::cuda {
namespace {

/// Ops that fit into no graph, before the plan is given up where another one cannot be captured.
constexpr std::size_t kMostKeptOut = 64;

/// Captures for an op whose numbers leave what was captured, before it is kept out of graphs.
constexpr int kMostObjections = 4;

/// Gives a group the numbers that its ops have now, as far as they are known. That they no longer
/// have the same, where that is so.
std::optional<KeptOut> parted(GroupedCall& group) {
  if (group.take_numbers()) return std::nullopt;
  return KeptOut{group.call().op, kOtherNumbers};
}

}  // namespace

PlanInUse::PlanInUse(std::shared_ptr<const trace::Recording> recording, GeneratorOf generator)
    : recording_(std::move(recording)), generator_(std::move(generator)) {
  plan_again();
}

void PlanInUse::give_up_on(KeptOut op) {
  if (exceptions_.kept_out.size() >= kMostKeptOut) {
    throw Error(ErrorCode::kUnsupported,
                "no graphs could be captured: " + words_of(*plan_, op.op, op.why));
  }
  keep_out(std::move(op));
}

void PlanInUse::keep_out(KeptOut op) {
  if (const GroupedCall* group = plan_->group_with(op.op)) {
    leave_alone(*group);
  } else {
    exceptions_.kept_out.push_back(std::move(op));
  }
  plan_again();
}

void PlanInUse::leave_alone(const GroupedCall& group) {
  exceptions_.alone.insert(exceptions_.alone.end(), group.ops().begin(), group.ops().end());
}

void PlanInUse::plan_again() {
  auto next = std::make_unique<DevicePlan>(recording_, generator_, exceptions_);
  captured_ = {};
  kept_out_next_.reset();
  transfers_.reset();
  plan_ = std::move(next);
  transfers_.emplace(*plan_);
}

bool PlanInUse::set_apart(trace::Index op) {
  const auto is_here = [op](const auto& ops) { return std::ranges::find(ops, op) != ops.end(); };
  const auto segment = std::ranges::find_if(plan_->segments, is_here, &Segment::ops);
  if (segment == plan_->segments.end() || plan_->call_of(op).is_once) return false;
  if (segment->kind == SegmentKind::kGraph) {
    exceptions_.kept_out.push_back({op, "it leaves other bits each time it runs"});
    plan_again();
  }
  return true;
}

bool PlanInUse::ungroup() {
  if (plan_->groups.empty()) return false;
  for (const GroupedCall& group : plan_->groups) leave_alone(group);
  plan_again();
  return true;
}

void PlanInUse::begin() {
  if (kept_out_next_) keep_out(*std::exchange(kept_out_next_, std::nullopt));
}

std::optional<KeptOut> PlanInUse::parted_group() {
  for (GroupedCall& group : plan_->groups) {
    if (auto found = parted(group)) return found;
  }
  return std::nullopt;
}

std::string PlanInUse::object_to_numbers() {
  if (auto found = parted_group()) {
    keep_out(*std::move(found));
    return kOtherNumbers;
  }
  auto found = objection();
  if (!found) return {};
  std::string why = found->why;
  if (++objections_[found->op] > kMostObjections) keep_out(*std::move(found));
  return why;
}

bool PlanInUse::would_object_to_numbers() { return parted_group() || objection(); }

std::optional<KeptOut> PlanInUse::objection() const {
  for (const Captured::Segment& captured_segment : captured_.segments) {
    if (!captured_segment.graph) continue;
    if (auto found = captured_segment.updates.objection()) return found;
  }
  return std::nullopt;
}

void PlanInUse::check_numbers(std::size_t segment) {
  std::optional<KeptOut> found;
  for (const trace::Index group : plan_->groups_in[segment]) {
    found = parted(plan_->groups[group]);
    if (!found) continue;
    kept_out_next_ = found;
    break;
  }
  if (!found) found = captured_.segments[segment].updates.objection();
  if (!found) return;
  throw AssumptionViolated(
      RefusalCode::kScalarVaries,
      guards::failed(GuardKind::kPredicate, found->why, "a number as captured", "another"));
}

}  // namespace steptape::replayer::cuda
