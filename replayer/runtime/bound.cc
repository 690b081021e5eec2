#include "replayer/runtime/bound.h"

#include <algorithm>

namespace steptape::replayer {
namespace {

/// In each run.
bool is_made(const Program& program, const BufferPlan& plan) {
  return plan.defined >= 0 && !plan.stays &&
         program.instructions[static_cast<std::size_t>(plan.defined)].treatment !=
             Treatment::kDropped;
}

/// The last op whose results are allocated while it runs, which may fail for want of memory; -1:
/// none.
std::int64_t last_allocating_op(const Program& program) {
  std::int64_t last = -1;
  for (const BufferPlan& plan : program.buffers) {
    if (is_new_each_time(plan.placement) && is_made(program, plan))
      last = std::max(last, plan.defined);
  }
  return last;
}

}  // namespace

Bound bound_of(const Program& program, const Writes& writes) {
  Bound bound;
  bound.last_deciding_op = writes.last_throwing_op;
  const std::int64_t last_throwing_op =
      std::max(writes.last_throwing_op, last_allocating_op(program));
  std::vector<std::size_t> position(program.buffers.size(), 0);
  for (trace::BufferId id = 0; id < program.buffers.size(); ++id) {
    if (program.buffers[id].placement != Placement::kBound) continue;
    position[id] = bound.buffers.size();
    bound.buffers.push_back(id);
  }
  for (const Writes::Write& write : writes.writes) {
    if (program.buffers[write.buffer].placement == Placement::kConstant) {
      bound.refilled.push_back(write.buffer);
      continue;
    }
    bound.written.push_back(position[write.buffer]);
    if (write.first <= last_throwing_op) {
      bound.undone.push_back(position[write.buffer]);
    } else {
      bound.first_lasting_write = std::min(bound.first_lasting_write, write.first);
    }
  }
  bound.draws_random = writes.draws_random;
  bound.restores_generators = writes.draws_random && last_throwing_op >= 0;
  return bound;
}

}  // namespace steptape::replayer
