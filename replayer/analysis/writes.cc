#include "replayer/analysis/writes.h"

#include <algorithm>

#include "live/operators.h"
#include "replayer/analysis/lifetimes.h"

namespace steptape::replayer {

Writes writes_of(const trace::Recording& recording) {
  Writes result;
  const std::vector<Lifetime> lifetimes = lifetimes_of(recording);
  std::vector<std::int64_t> first(recording.buffers.size(), -1);
  for (std::size_t i = 0; i < recording.ops.size(); ++i) {
    const trace::Op& op = recording.ops[i];
    const live::Effects& effects =
        live::effects_of(*live::find_operator(recording.operator_of(op)));
    const auto at = static_cast<std::int64_t>(i);
    const auto write = [&](trace::TensorId id) {
      if (id == trace::kNoTensor) return;
      const trace::BufferId buffer = recording.tensors[id].buffer;
      if (!lifetimes[buffer].made_inside && first[buffer] < 0) first[buffer] = at;
    };
    if (!effects.is_inplace_view) {
      for (std::size_t a = 0; a < op.inputs.size(); ++a) {
        if (effects.writes[a]) for_each_tensor(op.inputs[a], write);
      }
    }
    for (const trace::TensorId id : op.unannotated_writes) write(id);
    if (effects.may_throw_on_data) result.last_throwing_op = at;
    result.draws_random |= effects.is_random;
  }
  for (const trace::HostRead& read : recording.reads) {
    if (read.use != trace::ReadUse::kChecked) continue;
    result.last_throwing_op = std::max(result.last_throwing_op, static_cast<std::int64_t>(read.op));
  }
  for (trace::BufferId buffer = 0; buffer < first.size(); ++buffer) {
    if (first[buffer] >= 0) result.writes.push_back({buffer, first[buffer]});
  }
  return result;
}

}  // namespace steptape::replayer
