#include "tools/dump/summary.h"

#include <algorithm>

#include "trace/named.h"
#include "trace/operators.h"

namespace steptape::tools {
namespace {

std::vector<RoleTotal> total_roles(const trace::Recording& recording) {
  std::vector<RoleTotal> totals;
  for (const trace::Buffer& buffer : recording.buffers) {
    auto total = std::ranges::find(totals, buffer.role, &RoleTotal::role);
    if (total == totals.end()) total = totals.insert(totals.end(), RoleTotal{buffer.role});
    ++total->buffers;
    total->bytes += buffer.bytes;
  }
  std::ranges::sort(totals, {}, &RoleTotal::role);
  return totals;
}

/// For each buffer, the first op that takes a tensor in it.
std::vector<trace::Index> first_readers(const trace::Recording& recording) {
  std::vector<trace::Index> first(recording.buffers.size(), trace::kNone);
  for (std::size_t op = 0; op < recording.ops.size(); ++op) {
    for (const trace::Value& input : recording.ops[op].inputs) {
      trace::for_each_tensor(input, [&](trace::TensorId id) {
        if (id == trace::kNoTensor) return;
        trace::Index& reader = first[recording.tensors[id].buffer];
        reader = std::min(reader, static_cast<trace::Index>(op));
      });
    }
  }
  return first;
}

std::vector<Constant> list_constants(const trace::Recording& recording) {
  std::vector<Constant> constants;
  const std::vector<trace::Index> first = first_readers(recording);
  for (std::size_t i = 0; i < recording.buffers.size(); ++i) {
    const trace::Buffer& buffer = recording.buffers[i];
    if (buffer.role != trace::Role::kConstant) continue;
    Constant constant{buffer.path, buffer.bytes, buffer.content != nullptr, first[i], "", ""};
    if (first[i] != trace::kNone) {
      const trace::Op& op = recording.ops[first[i]];
      constant.module = recording.module_path(op.module);
      constant.scope = recording.scope_of(op);
    }
    constants.push_back(std::move(constant));
  }
  std::ranges::stable_sort(constants, std::ranges::greater(), &Constant::bytes);
  return constants;
}

}  // namespace

Summary summarize(const trace::Recording& recording) {
  Summary summary;
  summary.backward_ops = static_cast<std::uint64_t>(
      std::ranges::count(recording.ops, trace::Phase::kBackward, &trace::Op::phase));
  summary.roles = total_roles(recording);
  for (const RoleTotal& total : summary.roles) summary.bytes += total.bytes;
  for (const trace::Tracked& tracked : recording.tracked) {
    if (tracked.role != trace::Role::kParameter) continue;
    summary.parameters.push_back(&tracked);
    summary.elements += static_cast<std::uint64_t>(recording.tensors[tracked.tensor].numel());
  }
  summary.constants = list_constants(recording);
  return summary;
}

std::uint64_t bytes_of_state(const trace::Trace& trace) {
  std::uint64_t bytes = 0;
  for (const trace::Saved& saved : trace.state) {
    if (saved.content) bytes += saved.content->size();
  }
  return bytes;
}

namespace {

constexpr std::array kPartNames = {
    trace::Named{StepPart::kForward, "forward"},
    trace::Named{StepPart::kBackward, "backward"},
    trace::Named{StepPart::kUpdate, "update"},
};

/// What torch calls the range around the step of an optimizer.
constexpr std::string_view kOptimizerScope = "Optimizer.step#";

bool is_forward(const trace::Op& op) { return op.phase == trace::Phase::kForward; }

std::vector<bool> scoped_updates(const trace::Recording& recording) {
  std::vector<bool> is_update;
  for (const trace::Op& op : recording.ops) {
    is_update.push_back(is_forward(op) &&
                        recording.scope_of(op).find(kOptimizerScope) != std::string::npos);
  }
  return is_update;
}

bool writes_what_is_trained(const trace::Recording& recording, const trace::OpUse& use) {
  return std::ranges::any_of(use.writes, [&](trace::TensorId id) {
    if (id == trace::kNoTensor) return false;
    const trace::Role role = recording.buffers[recording.tensors[id].buffer].role;
    return role == trace::Role::kParameter || role == trace::Role::kOptimizerState;
  });
}

std::vector<bool> written_updates(const trace::Recording& recording) {
  const std::vector<trace::OpUse> uses = trace::uses_of(recording);
  std::size_t first = recording.ops.size();
  std::size_t end = 0;
  for (std::size_t i = 0; i < uses.size(); ++i) {
    const trace::Op& op = recording.ops[i];
    if (!is_forward(op) || op.module != trace::kNone) continue;
    if (!writes_what_is_trained(recording, uses[i])) continue;
    first = std::min(first, i);
    end = i + 1;
  }
  std::vector<bool> is_update(recording.ops.size());
  for (std::size_t i = first; i < end; ++i) is_update[i] = is_forward(recording.ops[i]);
  return is_update;
}

}  // namespace

std::string_view name_of(StepPart part) noexcept { return trace::find_name(kPartNames, part); }

std::vector<StepPart> parts_of(const trace::Recording& recording) {
  std::vector<bool> is_update = scoped_updates(recording);
  if (std::ranges::find(is_update, true) == is_update.end()) is_update = written_updates(recording);
  std::vector<StepPart> parts;
  for (std::size_t i = 0; i < recording.ops.size(); ++i) {
    parts.push_back(!is_forward(recording.ops[i]) ? StepPart::kBackward
                    : is_update[i]                ? StepPart::kUpdate
                                                  : StepPart::kForward);
  }
  return parts;
}

}  // namespace steptape::tools
