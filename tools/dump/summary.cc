#include "tools/dump/summary.h"

#include <algorithm>

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
      if (op.module != trace::kNone) constant.module = recording.modules[op.module].path;
      if (op.scope != trace::kNone) constant.scope = recording.scopes[op.scope];
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

}  // namespace steptape::tools
