#include "replayer/planner/program.h"

#include "live/operators.h"
#include "replayer/planner/analysis/lifetimes.h"
#include "trace/windows.h"

namespace steptape::replayer {
namespace {

Placement first_placement(const trace::Buffer& buffer, const Lifetime& lifetime) {
  if (lifetime.made_inside || !lifetime.is_used) return Placement::kAdopted;
  const bool host_made = buffer.role == trace::Role::kConstant && buffer.path.empty();
  return host_made ? Placement::kConstant : Placement::kBound;
}

}  // namespace

Program lower(std::shared_ptr<const trace::Recording> recording) {
  Program program;
  program.instructions.reserve(recording->ops.size());
  for (const trace::Op& op : recording->ops) {
    // analysis has refused operators that this process lacks
    const c10::OperatorHandle callee = *live::find_operator(recording->operator_of(op));
    const bool geometry = live::effects_of(callee).is_inplace_view;
    program.instructions.push_back({geometry ? Treatment::kGeometry : Treatment::kCall, callee});
  }
  std::vector<bool> is_window(recording->buffers.size());
  for (const trace::Window& window : recording->windows) is_window[window.buffer] = true;
  for (std::size_t i = 0; !recording->windows.empty() && i < recording->ops.size(); ++i) {
    const trace::Op& op = recording->ops[i];
    if (!trace::gives_windows(recording->operator_of(op))) continue;
    const auto buffers_of = [&](const std::vector<trace::Value>& values) {
      std::vector<trace::BufferId> buffers;
      for_each_buffer(*recording, values, [&](trace::BufferId id) { buffers.push_back(id); });
      return buffers;
    };
    const auto given = buffers_of(op.outputs), from = buffers_of(op.inputs);
    if (given.size() == 1 && is_window[given[0]] && given != from)
      program.instructions[i].treatment = Treatment::kGeometry;
  }
  const std::vector<Lifetime> lifetimes = lifetimes_of(*recording);
  program.buffers.reserve(lifetimes.size());
  for (std::size_t i = 0; i < lifetimes.size(); ++i) {
    const Lifetime& lifetime = lifetimes[i];
    program.buffers.push_back(
        {first_placement(recording->buffers[i], lifetime), 0, lifetime.defined, lifetime.last_use});
  }
  program.recording = std::move(recording);
  return program;
}

}  // namespace steptape::replayer
