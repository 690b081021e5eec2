#pragma once

#include <functional>
#include <string>
#include <vector>

#include "replayer/planner/program.h"
#include "replayer/runtime/cuda/plan/agreement.h"
#include "replayer/runtime/cuda/plan/segments.h"

namespace steptape::replayer::cuda {

/// Ops that do the same to several tensors, none of them to what another one uses.
struct Group {
  const ForeachOperator* by = nullptr;  ///< does all of them
  std::vector<trace::Index> ops;        ///< as they stand in their segment, one after the other
};

/// Whether the operator leaves the bits that the op would.
using Agrees = std::function<bool(const ForeachOperator& by, trace::Index op)>;

/// Groups of ops in graphs: what a loop over parameters does to one after the other becomes one
/// call for all, with kernels that take many tensors, and one number where each had its own. Puts
/// such ops side by side, across pointwise ops alone; whatever orders two ops is kept. Ops in
/// `alone` are done by themselves, and so are those on more than 1 MiB, whose kernels take longer
/// than a launch. What ops that were moved make is alive at a time: 4 MiB of it at most.
std::vector<Group> group_ops(const Program& program, std::vector<Segment>& segments,
                             const std::vector<trace::Index>& alone, const Agrees& agrees);

}  // namespace steptape::replayer::cuda
