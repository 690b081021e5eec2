#include "replayer/cuda/device_plan.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "live/generator_state.h"
#include "replayer/passes/passes.h"
#include "replayer/run/backends.h"
#include "steptape/error.h"

namespace steptape::replayer::cuda {
namespace {

std::vector<trace::Index> ops_of(const Program& program) {
  std::vector<trace::Index> ops;
  for (const Place& place : order_of(program, writes_of(*program.recording).earliest_reads)) {
    ops.push_back(place.op);
  }
  return ops;
}

/// What a graph makes of a call does not follow from kernels, chains or planned memory: those
/// passes are the CPU's.
Program lowered(std::shared_ptr<const trace::Recording> recording) {
  Program program = lower(std::move(recording));
  drop_dead(program);
  elide_views(program);
  return program;
}

Program placed(Program program, const std::vector<Part>& parts) {
  place_buffers(program, parts);
  return program;
}

void refuse_seeks(const trace::Recording& recording) {
  for (const trace::Seek& seek : recording.seeks) {
    throw Error(ErrorCode::kUnsupported, "generator `" + seek.generator +
                                             "` is set back inside the step, which no graph does");
  }
}

/// Whether a run may end at this part: it looks at what it is given.
bool may_end_run(const Part& part) { return part.way != Way::kGraph; }

}  // namespace

DevicePlan::DevicePlan(std::shared_ptr<const trace::Recording> recording,
                       const GeneratorOf& generator, const std::vector<KeptOut>& kept_out)
    : program(lowered(std::move(recording))),
      parts(parts_of(program, ops_of(program), kept_out)),
      memory(program = placed(std::move(program), parts)),
      calls(calls_of(program, memory, generator, writes_of(*program.recording).earliest_reads)),
      results(program, memory),
      position_of(program.instructions.size(), 0),
      freed_behind(program.instructions.size()),
      released_behind(parts.size()) {
  refuse_seeks(this->recording());
  for (std::size_t i = 0; i < calls.calls.size(); ++i) position_of[calls.calls[i].op] = i;
  numbers.emplace(program, memory, calls.calls);

  const Writes writes = writes_of(this->recording());
  bound = bound_of(program, writes);
  if (bound.draws_random) {
    const at::Generator device =
        generator(live::default_generator_path(device_of(this->recording())));
    if (std::ranges::find(calls.generators, device) == calls.generators.end()) {
      calls.generators.push_back(device);
    }
  }

  // in the order of a replay: what is done ahead may have moved in front of what came before it
  std::vector<std::size_t> last_part(program.buffers.size(), 0);
  std::vector<trace::Index> last_op(program.buffers.size(), trace::kNone);
  std::vector<bool> is_met_outside(program.buffers.size(), false);  // by an op outside graphs
  std::unordered_set<trace::BufferId> written;
  for (std::size_t p = 0; p < parts.size(); ++p) {
    if (may_end_run(parts[p])) first_decided = p + 1;
    for (const trace::Index op : parts[p].ops) {
      for_each_tensor_of(this->recording().ops[op], [&](trace::TensorId id) {
        const trace::BufferId buffer = this->recording().tensors[id].buffer;
        last_part[buffer] = p;
        last_op[buffer] = op;
        if (parts[p].way != Way::kGraph) is_met_outside[buffer] = true;
      });
    }
  }
  for (std::size_t p = 0; p < first_decided; ++p) {
    for (const trace::Index op : parts[p].ops) {
      for (const trace::BufferId id : written_by(this->recording(), this->recording().ops[op])) {
        written.insert(id);
      }
    }
  }
  bound.undone.clear();
  for (const std::size_t position : bound.written) {
    if (written.contains(bound.buffers[position])) bound.undone.push_back(position);
  }
  bound.restores_generators = bound.draws_random && first_decided > 0;

  const auto end = static_cast<std::int64_t>(this->recording().ops.size());
  for (trace::BufferId id = 0; id < program.buffers.size(); ++id) {
    const BufferPlan& plan = program.buffers[id];
    if (plan.last_use == end || last_op[id] == trace::kNone) continue;
    if (plan.placement == Placement::kAdopted) {
      released_behind[last_part[id]].push_back(id);
    } else if (plan.placement == Placement::kCaptured && !is_met_outside[id]) {
      freed_behind[last_op[id]].push_back(id);
    }
  }
}

}  // namespace steptape::replayer::cuda
