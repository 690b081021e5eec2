#include "tools/dump/step_part.h"

#include <algorithm>

#include "trace/op_use.h"

namespace steptape::tools {
namespace {

/// What torch calls the range around the step of an optimizer.
constexpr std::string_view kOptimizerScope = "Optimizer.step#";

bool is_forward(const trace::Op& op) { return op.phase == trace::Phase::kForward; }

std::vector<bool> scoped_updates(const trace::Recording& recording) {
  std::vector<bool> is_update;
  for (const trace::Op& op : recording.ops) {
    is_update.push_back(op.scope != trace::kNone && is_forward(op) &&
                        recording.scopes[op.scope].find(kOptimizerScope) != std::string::npos);
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

std::string_view name_of(StepPart part) noexcept {
  switch (part) {
    case StepPart::kForward:
      return "forward";
    case StepPart::kBackward:
      return "backward";
    case StepPart::kUpdate:
      return "update";
  }
  return "unknown";
}

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
