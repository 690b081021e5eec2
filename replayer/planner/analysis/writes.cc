#include "replayer/planner/analysis/writes.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "live/operators.h"
#include "replayer/planner/analysis/lifetimes.h"
#include "replayer/planner/analysis/run_order.h"

namespace steptape::replayer {

namespace {

/// Whether the call itself says that it is not in training: then batch norms leave their running
/// statistics alone.
bool evaluates(const trace::Op& op, const c10::FunctionSchema& schema) {
  if (schema.name().find("batch_norm") == std::string::npos) return false;
  for (const char* name : {"training", "train"}) {
    const std::optional<int> training = schema.argumentIndexWithName(name);
    if (!training || static_cast<std::size_t>(*training) >= op.inputs.size()) continue;
    const auto* flag = std::get_if<bool>(&op.inputs[static_cast<std::size_t>(*training)].data);
    if (flag != nullptr && !*flag) return true;
  }
  return false;
}

}  // namespace

std::vector<trace::BufferId> written_by(const trace::Recording& recording, const trace::Op& op) {
  std::vector<trace::BufferId> buffers;
  const auto write = [&](trace::TensorId id) {
    if (id != trace::kNoTensor) buffers.push_back(recording.tensors[id].buffer);
  };
  const auto handle = live::find_operator(recording.operator_of(op));
  if (!handle) return buffers;
  const live::Effects& effects = live::effects_of(*handle);
  if (!effects.is_inplace_view) {
    const bool is_evaluation = evaluates(op, handle->schema());
    for (std::size_t a = 0; a < std::min(op.inputs.size(), effects.writes.size()); ++a) {
      if (effects.writes_unannotated[a] && is_evaluation) continue;
      if (effects.writes[a]) for_each_tensor(op.inputs[a], write);
    }
  }
  for (const trace::TensorId id : op.unannotated_writes) write(id);
  return buffers;
}

Writes writes_of(const trace::Recording& recording) {
  Writes result;
  const std::vector<Lifetime> lifetimes = lifetimes_of(recording);
  constexpr auto kNever = std::numeric_limits<std::int64_t>::max();
  std::vector<std::int64_t> first(recording.buffers.size(), kNever);
  result.places = places_of(recording);
  for (std::size_t i = 0; i < recording.ops.size(); ++i) {
    const trace::Op& op = recording.ops[i];
    const live::Effects& effects =
        live::effects_of(*live::find_operator(recording.operator_of(op)));
    for (const trace::BufferId buffer : written_by(recording, op)) {
      if (!lifetimes[buffer].made_inside) first[buffer] = std::min(first[buffer], result.places[i]);
    }
    result.draws_random |= effects.is_random;
    const bool is_read = std::ranges::binary_search(
        recording.reads, i, {},
        [](const trace::HostRead& read) { return static_cast<std::size_t>(read.op); });
    if (effects.may_throw_on_data || is_read) {
      result.last_throwing_op = std::max(result.last_throwing_op, result.places[i]);
    }
  }
  for (trace::BufferId buffer = 0; buffer < first.size(); ++buffer) {
    if (first[buffer] != kNever) result.writes.push_back({buffer, first[buffer]});
  }
  return result;
}

}  // namespace steptape::replayer
