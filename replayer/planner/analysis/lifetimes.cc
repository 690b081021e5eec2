#include "replayer/planner/analysis/lifetimes.h"

#include <algorithm>

namespace steptape::replayer {

std::vector<Lifetime> lifetimes_of(const trace::Recording& recording) {
  std::vector<Lifetime> lifetimes(recording.buffers.size());
  std::vector<bool> seen(recording.buffers.size(), false);
  const auto see = [&](trace::TensorId id, std::int64_t at, bool as_output) {
    if (id == trace::kNoTensor) return;
    const trace::BufferId buffer = recording.tensors[id].buffer;
    Lifetime& lifetime = lifetimes[buffer];
    if (!seen[buffer]) {
      seen[buffer] = true;
      lifetime.is_used = true;
      lifetime.made_inside = as_output;
      lifetime.defined = as_output ? at : -1;
    }
    lifetime.last_use = std::max(lifetime.last_use, at);
  };
  for (const trace::Input& input : recording.inputs) {
    for_each_tensor(input.value, [&](trace::TensorId id) { see(id, -1, false); });
  }
  for (const trace::Tracked& tracked : recording.tracked) see(tracked.tensor, -1, false);
  for (const trace::Window& window : recording.windows) {
    seen[window.buffer] = lifetimes[window.buffer].is_used = true;
  }
  for (std::size_t i = 0; i < recording.ops.size(); ++i) {
    const auto at = static_cast<std::int64_t>(i);
    for_each_tensor(recording.ops[i].inputs, [&](trace::TensorId id) { see(id, at, false); });
    for_each_tensor(recording.ops[i].outputs, [&](trace::TensorId id) { see(id, at, true); });
  }
  const auto end = static_cast<std::int64_t>(recording.ops.size());
  for (const trace::TensorId id : recording.results) see(id, end, false);
  for (const trace::ExitGradient& gradient : recording.exit_gradients)
    see(gradient.tensor, end, false);
  return lifetimes;
}

}  // namespace steptape::replayer
