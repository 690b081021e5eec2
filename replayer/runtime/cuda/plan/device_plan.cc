#include "replayer/runtime/cuda/plan/device_plan.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <span>
#include <unordered_set>
#include <utility>

#include "live/generator_state.h"
#include "live/operators.h"
#include "replayer/planner/passes/passes.h"
#include "replayer/runtime/backends.h"
#include "replayer/runtime/cpu/stages.h"
#include "replayer/runtime/cuda/plan/agreement.h"
#include "steptape/error.h"

namespace steptape::replayer::cuda {
namespace {

std::vector<trace::Index> ops_of(const Program& program, const Writes& writes) {
  std::vector<trace::Index> ops;
  for (const Place& place : order_of(program, writes.places)) {
    ops.push_back(place.op);
  }
  return ops;
}

/// What a graph makes of a call does not follow from kernels, fusion or planned memory: those
/// passes are the CPU's.
Program lowered(std::shared_ptr<const trace::Recording> recording) {
  Program program = lower(std::move(recording));
  drop_dead(program);
  elide_views(program);
  return program;
}

Program placed(Program program, const std::vector<Segment>& segments) {
  place_buffers(program, segments);
  return program;
}

/// Whether a run may end at this segment: it looks at what it is given.
bool may_end_run(const Segment& segment) { return segment.kind != SegmentKind::kGraph; }

}  // namespace

DevicePlan::DevicePlan(std::shared_ptr<const trace::Recording> recording,
                       const GeneratorOf& generator, const Exceptions& exceptions)
    : program(lowered(std::move(recording))),
      writes(writes_of(*program.recording)),
      segments(segments_of(program, ops_of(program, writes), exceptions.kept_out)),
      memory(program = placed(std::move(program), segments)),
      calls(calls_of(program, memory, generator, writes.places)),
      bound(bound_of(program, writes)),
      results(program, memory),
      position_of(program.instructions.size(), 0),
      group_of(program.instructions.size(), trace::kNone),
      freed_after(program.instructions.size()),
      released_after(segments.size()) {
  for (std::size_t i = 0; i < calls.calls.size(); ++i) position_of[calls.calls[i].op] = i;
  numbers.emplace(program, bound.refilled, memory, calls.calls);
  const auto segment_of = [this](trace::Index op) {
    const auto holds = [op](const auto& ops) { return std::ranges::find(ops, op) != ops.end(); };
    const auto found = std::ranges::find_if(segments, holds, &Segment::ops);
    return static_cast<std::size_t>(found - segments.begin());
  };
  seeks.emplace(this->recording(), segments.size(), segment_of, generator);
  // ops of the host alone: of an optimizer's step counts, most of all
  cpu::prepare_elementwise_kernels(program, memory, bound.refilled, calls.calls);
  make_groups(exceptions.alone);
  add_default_generator(generator);
  choose_what_is_undone();
  choose_when_memory_is_free();
}

void DevicePlan::make_groups(const std::vector<trace::Index>& alone) {
  const auto is_same = [this](const ForeachOperator& by, trace::Index op) {
    return agrees(program, by, op);
  };
  for (const Group& group : group_ops(program, segments, alone, is_same)) {
    std::vector<const Call*> members;
    for (const trace::Index op : group.ops) {
      members.push_back(&call_of(op));
      group_of[op] = static_cast<trace::Index>(groups.size());
    }
    groups.emplace_back(group, std::move(members));
  }
  groups_in.resize(segments.size());
  for (std::size_t p = 0; p < segments.size(); ++p) {
    for (const trace::Index op : segments[p].ops) {
      const GroupedCall* group = group_with(op);
      if (group != nullptr && group->ops().front() == op) groups_in[p].push_back(group_of[op]);
    }
  }
}

void DevicePlan::add_default_generator(const GeneratorOf& generator) {
  if (!bound.draws_random) return;
  const at::Generator device = generator(live::default_generator_path(device_of(recording())));
  if (std::ranges::find(calls.generators, device) != calls.generators.end()) return;
  calls.generators.push_back(device);
}

void DevicePlan::choose_what_is_undone() {
  for (std::size_t p = 0; p < segments.size(); ++p) {
    if (may_end_run(segments[p])) first_decided = p + 1;
  }
  std::unordered_set<trace::BufferId> written;
  for (const Segment& segment : std::span(segments).first(first_decided)) {
    for (const trace::Index op : segment.ops) {
      const auto ids = written_by(recording(), recording().ops[op]);
      written.insert(ids.begin(), ids.end());
    }
  }
  bound.undone.clear();
  for (const std::size_t position : bound.written) {
    if (written.contains(bound.buffers[position])) bound.undone.push_back(position);
  }
  bound.restores_generators = bound.draws_random && first_decided > 0;
}

void DevicePlan::choose_when_memory_is_free() {
  // in the order of a replay: what is done ahead may have moved in front of what came before it
  struct Use {
    std::size_t segment = 0;
    trace::Index op = trace::kNone;
    bool is_outside = false;  ///< by some op outside graphs
  };
  std::vector<Use> last(program.buffers.size());
  for (std::size_t p = 0; p < segments.size(); ++p) {
    const bool is_graph = segments[p].kind == SegmentKind::kGraph;
    for (const trace::Index op : segments[p].ops) {
      for_each_tensor_of(recording().ops[op], [&](trace::TensorId id) {
        Use& use = last[recording().tensors[id].buffer];
        use = {p, op, use.is_outside || !is_graph};
      });
    }
  }
  const auto end = static_cast<std::int64_t>(recording().ops.size());
  for (trace::BufferId id = 0; id < program.buffers.size(); ++id) {
    const BufferPlan& plan = program.buffers[id];
    if (plan.last_use == end || last[id].op == trace::kNone) continue;
    if (plan.placement == Placement::kAdopted) {
      released_after[last[id].segment].push_back(id);
    } else if (plan.placement == Placement::kCaptured && !last[id].is_outside) {
      freed_after[last[id].op].push_back(id);
    }
  }
}

namespace {

bool same_number(const c10::IValue& a, const c10::IValue& b) {
  if (a.isInt() || b.isInt()) return a.isInt() && b.isInt() && a.toInt() == b.toInt();
  return std::bit_cast<std::uint64_t>(a.toDouble()) == std::bit_cast<std::uint64_t>(b.toDouble());
}

}  // namespace

GroupedCall::GroupedCall(const Group& group, std::vector<const Call*> members)
    : ops_(group.ops),
      members_(std::move(members)),
      call_{.callee = *live::find_operator({group.by->name, group.by->overload, ""})},
      dtype_(members_[0]->arguments[group.by->arguments[0].from].toTensor().scalar_type()) {
  call_.op = ops_.front();
  for (const ForeachArgument& argument : group.by->arguments) {
    const c10::IValue& first = members_[0]->arguments[argument.from];
    if (argument.kind == ForeachArgument::Kind::kEach) {
      c10::List<at::Tensor> list;
      for (const Call* member : members_)
        list.push_back(member->arguments[argument.from].toTensor());
      call_.arguments.emplace_back(std::move(list));
    } else if (argument.is_number()) {
      numbers_.push_back({call_.arguments.size(), argument});
      call_.arguments.push_back(foreach_number(first, argument.kind, dtype_));
    } else {
      call_.arguments.push_back(first);
    }
  }
  add_defaults(call_.callee.schema(), call_.arguments);
}

bool GroupedCall::take_numbers() {
  std::vector<c10::IValue> taken;
  for (const Number& number : numbers_) {
    const auto of = [&](const Call& member) {
      return foreach_number(member.arguments[number.from.from], number.from.kind, dtype_);
    };
    taken.push_back(of(*members_[0]));
    for (const Call* member : members_) {
      if (!same_number(of(*member), taken.back())) return false;
    }
  }
  for (std::size_t i = 0; i < numbers_.size(); ++i) {
    call_.arguments[numbers_[i].argument] = std::move(taken[i]);
  }
  return true;
}

std::vector<torch::jit::Stack> GroupedCall::split(const torch::jit::Stack& stack) const {
  std::vector<torch::jit::Stack> results(members_.size());
  if (stack.empty()) return results;
  const std::vector<at::Tensor> made = stack.back().toTensorVector();
  for (std::size_t i = 0; i < results.size() && i < made.size(); ++i) results[i] = {made[i]};
  return results;
}

}  // namespace steptape::replayer::cuda
