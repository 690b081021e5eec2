#include <algorithm>
#include <cstddef>
#include <vector>

#include "live/operators.h"
#include "replayer/planner/analysis/writes.h"
#include "replayer/planner/passes/passes.h"

namespace steptape::replayer {
namespace {

class Hoisting {
 public:
  explicit Hoisting(Program& program)
      : program_(program),
        is_constant_(program.buffers.size()),
        writers_(program.buffers.size(), 0),
        varies_(program.instructions.size(), false) {
    const trace::Recording& recording = *program.recording;
    for (const trace::Op& op : recording.ops) {
      for (const trace::BufferId id : written_by(recording, op)) ++writers_[id];
    }
    for (trace::BufferId id = 0; id < program.buffers.size(); ++id) {
      is_constant_[id] = program.buffers[id].placement == Placement::kConstant && writers_[id] == 0;
    }
    for (const trace::ScalarSite& site : recording.scalars) {
      if (site.op < varies_.size()) varies_[site.op] = true;
      if (site.op == trace::kNone && site.buffer < is_constant_.size())
        is_constant_[site.buffer] = false;
    }
  }

  void run() {
    const auto end = static_cast<std::int64_t>(program_.instructions.size());
    for (std::size_t i = 0; i < program_.instructions.size(); ++i) {
      if (!is_the_same_each_time(i)) continue;
      program_.instructions[i].is_once = true;
      for_each_buffer(recording(), recording().ops[i].outputs, [&](trace::BufferId id) {
        is_constant_[id] = true;
        BufferPlan& plan = program_.buffers[id];
        plan.stays = true;
        plan.last_use = end;
        if (plan.placement == Placement::kArena) plan.defined = -1;
      });
    }
  }

 private:
  const trace::Recording& recording() const { return *program_.recording; }

  bool is_the_same_each_time(std::size_t index) const {
    const Instruction& instruction = program_.instructions[index];
    if (instruction.treatment == Treatment::kGeometry ||
        instruction.treatment == Treatment::kDropped)
      return false;
    const trace::Op& op = program_.recording->ops[index];
    const live::Effects& effects =
        live::effects_of(*live::find_operator(program_.recording->operator_of(op)));
    const bool does_more = effects.is_random || effects.is_host_read || effects.is_dynamic_shape ||
                           effects.makes_unwritten || effects.is_collective();
    if (does_more || varies_[index] || std::ranges::count(effects.writes, true) > 0) return false;
    bool is_same = true;
    if (!effects.reads_geometry_only) {
      for_each_buffer(recording(), op.inputs,
                      [&](trace::BufferId id) { is_same &= is_constant_[id]; });
    }
    for_each_buffer(recording(), op.outputs, [&](trace::BufferId id) {
      is_same &= is_temporary(id) && writers_[id] == 0 &&
                 program_.buffers[id].defined == static_cast<std::int64_t>(index);
    });
    return is_same;
  }

  bool is_temporary(trace::BufferId id) const {
    const Placement placement = program_.buffers[id].placement;
    return program_.recording->buffers[id].role == trace::Role::kTemporary &&
           (placement == Placement::kArena || placement == Placement::kAdopted);
  }

  Program& program_;
  std::vector<bool> is_constant_;  ///< by buffer: holds the same bytes in each run
  std::vector<int> writers_;       ///< by buffer: ops that write it beside the one that makes it
  std::vector<bool> varies_;       ///< by op: a number of it changes from run to run
};

}  // namespace

void hoist_constants(Program& program) { Hoisting(program).run(); }

}  // namespace steptape::replayer
