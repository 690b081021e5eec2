#include "recorder/context/attribution.h"

#include <algorithm>
#include <utility>

namespace steptape::recorder {
namespace {

/// What an update writes, and forward does not.
bool is_updated(trace::Role role) {
  return role == trace::Role::kParameter || role == trace::Role::kGradient ||
         role == trace::Role::kOptimizerState;
}

}  // namespace

Attribution::Attribution(trace::Recording& recording, ModuleWatch& modules,
                         const OperatorTable& operators, bool calls_are_told)
    : recording_(recording),
      modules_(modules),
      operators_(operators),
      calls_are_told_(calls_are_told),
      is_update_(recording.ops.size(), false),
      uses_(recording.modules.size()) {
  for (const trace::Buffer& buffer : recording.buffers) {
    is_of_backward_.push_back(buffer.role == trace::Role::kGradient ||
                              buffer.role == trace::Role::kOptimizerState);
  }
}

void Attribution::run(const Accumulations& accumulations) {
  for (trace::Index index = 0; index < recording_.ops.size(); ++index) {
    trace::Op& op = recording_.ops[index];
    if (op.phase == trace::Phase::kForward) {
      attribute_forward(index);
      continue;
    }
    if (op.module != trace::kNone) {
      give(index, {op.module, op.call});
    } else {
      const auto accumulated = accumulations.find(index);
      attribute_backward(op, accumulated == accumulations.end() ? nullptr : &accumulated->second);
    }
    mark_outcome(op);
    before_ = {};
  }
  modules_.sort();
}

template <typename Visit>
void Attribution::for_each_use(const trace::Op& op, Visit&& visit) const {
  for (std::size_t k = 0; k < op.inputs.size(); ++k) {
    trace::for_each_tensor(op.inputs[k], [&](trace::TensorId tensor) {
      if (tensor != trace::kNoTensor) visit(Use{op.op, k, tensor});
    });
  }
}

void Attribution::attribute_backward(trace::Op& op, const trace::BufferId* parameter) {
  ModuleCall call;
  if (parameter != nullptr) {
    const auto used = last_use_.find(*parameter);
    if (used != last_use_.end()) {
      call = used->second;
    } else if (const trace::Index owner = modules_.owner(*parameter); owner != trace::kNone) {
      call = {owner, std::max(modules_.calls(owner), 1U)};
    }
  } else if (const auto forward = by_sequence_.find(op.sequence); forward != by_sequence_.end()) {
    call = forward->second;
  }
  op.module = call.module;
  op.call = call.call;
}

void Attribution::attribute_forward(trace::Index index) {
  const trace::Op& op = recording_.ops[index];
  if (op.module != trace::kNone) {
    give(index, {op.module, op.call});
    return;
  }
  if (updates(op)) {
    is_update_[index] = true;
    mark_outcome(op);
    before_ = {};
    return;
  }
  const ModuleCall call = calls_are_told_ ? ModuleCall() : call_of_owner(op);
  if (call.module == trace::kNone) {
    if (before_.module != trace::kNone) between_.push_back(index);
    return;
  }
  attribute_between(call);
  modules_.note(call, index);
  give(index, call);
  before_ = call;
}

void Attribution::attribute_between(const ModuleCall& next) {
  const std::vector<trace::Index> between = std::exchange(between_, {});
  if (before_.module == trace::kNone || between.empty()) return;
  ModuleCall around{modules_.around(before_.module, next.module), 1};
  if (around.module == trace::kNone) return;
  around.call = std::max(modules_.calls(around.module), 1U);
  modules_.note(around, modules_.first_below(around.module));
  for (const trace::Index index : between) give(index, around);
}

bool Attribution::updates(const trace::Op& op) const {
  bool updates = false;
  for_each_use(op, [&](const Use& use) {
    const trace::BufferId buffer = buffer_of(use.tensor);
    const bool is_written = is_updated(recording_.buffers[buffer].role) && writes(op, use);
    updates = updates || is_written || (op.sequence < 0 && is_of_backward_[buffer]);
  });
  trace::for_each_buffer(recording_, op.outputs, [&](trace::BufferId buffer) {
    updates = updates || (op.sequence < 0 && is_of_backward_[buffer]);
  });
  return updates;
}

bool Attribution::writes(const trace::Op& op, const Use& use) const {
  const live::Effects& effects = operators_.effects_of(op.op);
  if (effects.writes[use.argument] && !effects.writes_unannotated[use.argument]) return true;
  return std::ranges::find(op.unannotated_writes, use.tensor) != op.unannotated_writes.end();
}

std::vector<trace::BufferId> Attribution::written_by(trace::Index op) const {
  std::vector<trace::BufferId> written;
  const trace::Op& writer = recording_.ops[op];
  for_each_use(writer, [&](const Use& use) {
    if (writes(writer, use)) written.push_back(buffer_of(use.tensor));
  });
  return written;
}

bool Attribution::takes(const trace::Op& op, trace::BufferId buffer) const {
  bool takes = false;
  for_each_use(op, [&](const Use& use) { takes = takes || buffer_of(use.tensor) == buffer; });
  return takes;
}

void Attribution::mark_outcome(const trace::Op& op) {
  const auto mark = [this](trace::BufferId buffer) {
    const trace::Role role = recording_.buffers[buffer].role;
    if (role != trace::Role::kParameter && role != trace::Role::kModuleBuffer) {
      is_of_backward_[buffer] = true;
    }
  };
  for_each_use(op, [&](const Use& use) {
    if (writes(op, use)) mark(buffer_of(use.tensor));
  });
  trace::for_each_buffer(recording_, op.outputs, [&](trace::BufferId buffer) {
    if (!takes(op, buffer)) mark(buffer);
  });
}

ModuleCall Attribution::call_of_owner(const trace::Op& op) {
  trace::Index owner = trace::kNone;
  for_each_use(op, [&](const Use& use) {
    if (owner == trace::kNone) owner = modules_.owner(buffer_of(use.tensor));
  });
  if (owner == trace::kNone) return {};
  std::uint32_t call = modules_.calls(owner);
  std::vector<Use> taken;
  for_each_use(op, [&](const Use& use) {
    if (modules_.owner(buffer_of(use.tensor)) == owner) taken.push_back(use);
  });
  std::vector<Use>& uses = uses_[owner];
  const bool is_new = call == 0 || std::ranges::any_of(taken, [&uses](const Use& use) {
                        return std::ranges::find(uses, use) != uses.end();
                      });
  if (is_new) {
    ++call;
    uses.clear();
  }
  uses.insert(uses.end(), taken.begin(), taken.end());
  return {owner, call};
}

void Attribution::give(trace::Index index, const ModuleCall& call) {
  trace::Op& op = recording_.ops[index];
  op.module = call.module;
  op.call = call.call;
  if (op.sequence >= 0) by_sequence_.try_emplace(op.sequence, call);
  for_each_use(op, [&](const Use& use) {
    const trace::BufferId buffer = buffer_of(use.tensor);
    if (recording_.buffers[buffer].role == trace::Role::kParameter) last_use_[buffer] = call;
  });
}

}  // namespace steptape::recorder
