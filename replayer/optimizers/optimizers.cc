#include "replayer/optimizers/optimizers.h"

#include <algorithm>
#include <set>
#include <string>

#include "live/operators.h"
#include "replayer/analysis/writes.h"

namespace steptape::replayer {
namespace {

const char* reason_against(const std::string& type) {
  if (type == kSgd.type) return "";
  for (const OptimizerKnowledge& known : kVarying) {
    if (type == known.type) return known.why_not;
  }
  return "how it computes its scalars is not known";
}

/// Paths of the parameters that ops of `recording` write. Operators that this process lacks count
/// as writing nothing: they are refused on their own.
std::set<std::string> written_parameters(const trace::Recording& recording) {
  std::set<std::string> paths;
  for (const trace::Op& op : recording.ops) {
    const auto handle = live::find_operator(recording.operator_of(op));
    if (!handle) continue;
    const live::Effects& effects = live::effects_of(*handle);
    if (effects.is_inplace_view) continue;
    for (std::size_t a = 0; a < std::min(op.inputs.size(), effects.writes.size()); ++a) {
      if (!effects.writes[a]) continue;
      for_each_tensor(op.inputs[a], [&](trace::TensorId id) {
        if (id == trace::kNoTensor) return;
        const trace::Buffer& buffer = recording.buffers[recording.tensors[id].buffer];
        if (buffer.role == trace::Role::kParameter) paths.insert(buffer.path);
      });
    }
  }
  return paths;
}

bool holds_any(const trace::OptimizerLayout& layout, const std::set<std::string>& paths) {
  for (const trace::ParameterGroup& group : layout.groups) {
    for (const std::string& parameter : group.parameters) {
      if (paths.contains(parameter)) return true;
    }
  }
  return false;
}

}  // namespace

void refuse_optimizers(const trace::Recording& recording, std::vector<Refusal>& refusals) {
  const std::set<std::string> written = written_parameters(recording);
  for (const trace::OptimizerLayout& layout : recording.optimizers) {
    const std::string reason = reason_against(layout.type);
    if (reason.empty() || !holds_any(layout, written)) continue;
    Refusal refusal;
    refusal.code = RefusalCode::kOptimizerUnsupported;
    refusal.message = "`" + layout.path + "` is a " + layout.type + ": " + reason;
    refusals.push_back(std::move(refusal));
  }
}

void refuse_unowned_updates(const trace::Recording& recording, std::vector<Refusal>& refusals) {
  std::set<std::string> written = written_parameters(recording);
  for (const trace::OptimizerLayout& layout : recording.optimizers) {
    for (const trace::ParameterGroup& group : layout.groups) {
      for (const std::string& parameter : group.parameters) written.erase(parameter);
    }
  }
  for (const trace::ExitGradient& gradient : recording.exit_gradients) {
    if (gradient.tensor == trace::kNoTensor || !written.contains(gradient.parameter)) continue;
    Refusal refusal;
    refusal.code = RefusalCode::kUntrackedWrite;
    refusal.message =
        "parameter " + gradient.parameter +
        " has a gradient and is updated, and no tracked optimizer holds it: the numbers in "
        "its update would be frozen";
    refusals.push_back(std::move(refusal));
    return;
  }
}

}  // namespace steptape::replayer
