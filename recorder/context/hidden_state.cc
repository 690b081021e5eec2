#include "recorder/context/hidden_state.h"

#include <string_view>

#include "trace/path.h"

namespace steptape::recorder {
namespace {

/// The optimizer that holds the parameter in a buffer.
std::unordered_map<trace::BufferId, trace::Index> owners_of(const trace::Recording& recording) {
  std::unordered_map<std::string_view, trace::BufferId> buffers;
  for (const trace::Tracked& tracked : recording.tracked) {
    if (tracked.tensor == trace::kNoTensor) continue;
    buffers.emplace(tracked.path, recording.tensors[tracked.tensor].buffer);
  }
  std::unordered_map<trace::BufferId, trace::Index> owners;
  for (trace::Index k = 0; k < recording.optimizers.size(); ++k) {
    for (const trace::ParameterGroup& group : recording.optimizers[k].groups) {
      for (const std::string& parameter : group.parameters) {
        const auto buffer = buffers.find(parameter);
        if (buffer != buffers.end()) owners.emplace(buffer->second, k);
      }
    }
  }
  return owners;
}

}  // namespace

HiddenState::HiddenState(const trace::Recording& recording, const Attribution& attribution)
    : recording_(recording) {
  if (recording.optimizers.empty()) return;
  const auto owners = owners_of(recording);
  trace::Index writer = trace::kNone;
  for (auto index = static_cast<trace::Index>(recording.ops.size()); index-- > 0;) {
    const bool is_update = attribution.is_update(index);
    for (const trace::BufferId buffer : attribution.written_by(index)) {
      const auto owner = owners.find(buffer);
      if (is_update && owner != owners.end()) writer = owner->second;
    }
    trace::for_each_buffer(recording, recording.ops[index].inputs, [&](trace::BufferId buffer) {
      if (recording.buffers[buffer].role != trace::Role::kConstant) return;
      const auto [entry, is_new] = optimizers_.emplace(buffer, writer);
      if (!is_update) entry->second = kReadElsewhere;
      if (!is_new && entry->second != kReadElsewhere) entry->second = writer;
    });
  }
}

std::string HiddenState::path_of(trace::BufferId buffer) {
  const auto found = optimizers_.find(buffer);
  if (found == optimizers_.end() || found->second == kReadElsewhere) return "";
  const std::string& optimizer = recording_.optimizers[found->second].path;
  return trace::unnamed_path(optimizer, ++counts_[found->second]);
}

}  // namespace steptape::recorder
