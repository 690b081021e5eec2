#include "replayer/planner/passes/passes.h"

#include <cstddef>
#include <vector>

#include "live/operators.h"
#include "replayer/planner/analysis/lifetimes.h"
#include "replayer/planner/analysis/writes.h"

namespace steptape::replayer {

Program plan(std::shared_ptr<const trace::Recording> recording, FillsResults fills_results,
             const PassOptions& options) {
  Program program = lower(std::move(recording));
  program.uses_kernels = options.kernels;
  program.fuses = options.kernels && options.fusion;
  if (options.drop_dead) drop_dead(program);
  if (options.elide_views) elide_views(program);
  if (options.out_variants) use_out_variants(program, fills_results);
  if (options.hoist_constants) hoist_constants(program);
  plan_memory(program, options.share_memory ? Sharing::kByLifetime : Sharing::kNone);
  return program;
}

namespace {

/// Whether it must run though nobody needs its results: it draws from a generator, tells the host
/// something, may throw, exchanges something, or its results are looked at by the plan.
bool does_more(const live::Effects& effects) {
  return effects.is_random || effects.is_host_read || effects.is_dynamic_shape ||
         effects.may_throw_on_data || effects.is_collective();
}

/// The buffers that somebody needs after the op that is looked at.
class Needed {
 public:
  explicit Needed(const Program& program)
      : program_(program), is_needed_(program.buffers.size(), false) {
    const auto end = static_cast<std::int64_t>(program.instructions.size());
    for (trace::BufferId id = 0; id < program.buffers.size(); ++id) {
      const BufferPlan& plan = program.buffers[id];
      is_needed_[id] = plan.placement == Placement::kBound || plan.last_use == end;
    }
  }

  /// Whether anything that the op writes or returns is needed.
  bool is_needed(const trace::Op& op) const {
    bool is = false;
    for (const trace::BufferId id : written_by(*program_.recording, op)) is |= is_needed_[id];
    for_each_buffer(*program_.recording, op.outputs,
                    [&](trace::BufferId id) { is |= is_needed_[id]; });
    return is;
  }

  void need_inputs_of(const trace::Op& op) {
    for_each_buffer(*program_.recording, op.inputs,
                    [&](trace::BufferId id) { is_needed_[id] = true; });
  }

 private:
  const Program& program_;
  std::vector<bool> is_needed_;
};

}  // namespace

void drop_dead(Program& program) {
  Needed needed(program);
  for (std::size_t i = program.instructions.size(); i-- > 0;) {
    Instruction& instruction = program.instructions[i];
    const trace::Op& op = program.recording->ops[i];
    if (does_more(live::effects_of(instruction.callee)) || needed.is_needed(op)) {
      needed.need_inputs_of(op);
    } else {
      instruction.treatment = Treatment::kDropped;
    }
  }
}

namespace {

/// Whether every result lies in memory that was there before the op.
bool makes_no_memory(const Program& program, std::size_t index) {
  bool none = true;
  for_each_buffer(*program.recording, program.recording->ops[index].outputs,
                  [&](trace::BufferId id) {
                    none &= program.buffers[id].defined < static_cast<std::int64_t>(index);
                  });
  return none;
}

}  // namespace

void elide_views(Program& program) {
  for (std::size_t i = 0; i < program.instructions.size(); ++i) {
    Instruction& instruction = program.instructions[i];
    if (instruction.treatment != Treatment::kCall) continue;
    if (!live::effects_of(instruction.callee).is_view || !makes_no_memory(program, i)) continue;
    instruction.treatment = Treatment::kGeometry;
  }
}

}  // namespace steptape::replayer
