#pragma once

#include <ATen/core/stack.h>

#include <memory>
#include <string>
#include <vector>

#include "replayer/runtime/cuda/graph.h"
#include "replayer/runtime/cuda/number_updates.h"
#include "replayer/runtime/cuda/plan/device_plan.h"
#include "replayer/runtime/cuda/plan/segments.h"

namespace steptape::replayer::cuda {

/// The graphs of a plan for the memory that it was bound to when they were captured.
struct Captured {
  struct Segment {
    std::unique_ptr<Graph> graph;  ///< null: the segment is not a graph
    NumberUpdates updates;
  };
  std::vector<Segment> segments;  ///< one for each of the plan
  bool is_whole = false;          ///< that is all
  std::uint64_t nodes = 0;
};

/// An op that no graph can hold after all.
struct CannotBeCaptured {
  KeptOut op;
};

/// Captures the graphs of `plan` on the current stream. What segments outside graphs make must be
/// there from a run of all segments just before; captured buffers get the memory of the graphs.
/// Throws CannotBeCaptured, c10::OutOfMemoryError; after either nothing is being captured any more.
Captured capture(DevicePlan& plan, c10::MempoolId_t pool);

}  // namespace steptape::replayer::cuda
