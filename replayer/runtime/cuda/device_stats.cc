#include "replayer/runtime/cuda/device_stats.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "trace/refusals.h"

namespace steptape::replayer::cuda {

std::string words_of(const DevicePlan& plan, trace::Index op, const std::string& why) {
  const Refusal at = trace::refusal_at(plan.recording(), op, RefusalCode::kUnreplayableOp, "");
  std::string where;
  for (const std::string& text : {at.module, at.place}) {
    if (!text.empty()) where += (where.empty() ? "" : ", ") + text;
  }
  return name_of(plan.call_of(op)) + (where.empty() ? "" : " (" + where + ")") + ": " + why;
}

PlanStats stats_of(const DevicePlan& plan, const Captured& captured, const StaticMemory& statics,
                   Gradients gradients, DeviceStats told) {
  PlanStats stats;
  stats.ops = plan.recording().ops.size();
  stats.calls = plan.calls.calls.size();
  stats.stages = plan.segments.size();
  stats.device = std::move(told);
  for (const Segment& segment : plan.segments) {
    if (segment.kind == SegmentKind::kAhead) stats.device.ahead += segment.ops.size();
    if (segment.kind != SegmentKind::kBetween) continue;
    for (const trace::Index op : segment.ops) {
      stats.device.between.push_back(words_of(plan, op, segment.why));
    }
  }
  stats.device.groups = plan.groups.size();
  for (const GroupedCall& group : plan.groups) stats.device.grouped += group.ops().size();
  for (const Captured::Segment& captured_segment : captured.segments) {
    stats.device.updated += captured_segment.updates.kernels();
  }
  stats.device.static_bytes = statics.static_bytes();
  std::vector<Copy> copied = statics.copies();
  std::ranges::move(copies_out(plan.recording(), gradients), std::back_inserter(copied));
  for (Copy& copy : copied) {
    stats.device.copies.push_back(
        {std::move(copy.path), copy.bytes, std::move(copy.why), std::move(copy.remedy)});
  }
  return stats;
}

}  // namespace steptape::replayer::cuda
