#pragma once

#include <functional>
#include <vector>

#include "replayer/planner/analysis/writes.h"
#include "replayer/planner/passes/passes.h"
#include "replayer/runtime/calls.h"
#include "replayer/runtime/cuda/plan/segments.h"
#include "tests/replayer/recorded_steps.h"

namespace steptape::tests {

inline constexpr trace::Device kGpu{trace::DeviceKind::kCuda, 0};

/// A step that was recorded on the CPU, as if all had been on a GPU but the buffers that `stays`
/// says.
inline replayer::Program on_gpu(const StepBody& body, const std::vector<at::Tensor>& inputs,
                                const std::function<bool(const trace::Buffer&)>& stays = {}) {
  const auto recording = recorded(body, inputs);
  for (trace::Buffer& buffer : recording->buffers) {
    // numbers of the host stay there
    const bool is_number = buffer.role == trace::Role::kConstant && buffer.path.empty();
    if (!is_number && !(stays && stays(buffer))) buffer.device = kGpu;
  }
  replayer::Program program = replayer::lower(recording);
  replayer::drop_dead(program);
  replayer::elide_views(program);
  return program;
}

inline std::vector<replayer::cuda::Segment> segments_of(
    const replayer::Program& program, const std::vector<replayer::cuda::KeptOut>& kept_out = {}) {
  std::vector<trace::Index> order;
  const auto places = replayer::writes_of(*program.recording).places;
  for (const replayer::Place& place : replayer::order_of(program, places)) {
    order.push_back(place.op);
  }
  return replayer::cuda::segments_of(program, order, kept_out);
}

}  // namespace steptape::tests
