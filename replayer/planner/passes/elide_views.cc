#include "live/operators.h"
#include "replayer/planner/passes/passes.h"

namespace steptape::replayer {
namespace {

/// Whether every result lies in memory that was there before the op.
bool makes_no_memory(const Program& program, std::size_t index) {
  bool none = true;
  for (const trace::Value& value : program.recording->ops[index].outputs) {
    for_each_tensor(value, [&](trace::TensorId id) {
      if (id == trace::kNoTensor) return;
      const trace::BufferId buffer = program.recording->tensors[id].buffer;
      none &= program.buffers[buffer].defined < static_cast<std::int64_t>(index);
    });
  }
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
