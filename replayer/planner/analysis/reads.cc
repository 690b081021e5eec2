#include "replayer/planner/analysis/reads.h"

#include <algorithm>

#include "live/operators.h"
#include "replayer/planner/analysis/lifetimes.h"
#include "replayer/planner/analysis/writes.h"

namespace steptape::replayer {

std::vector<std::int64_t> earliest_of_reads(const trace::Recording& recording) {
  std::vector<std::int64_t> earliest;
  if (recording.reads.empty()) return earliest;
  const std::vector<Lifetime> lifetimes = lifetimes_of(recording);
  std::vector<std::int64_t> last_write(recording.buffers.size(), -1);
  auto read = recording.reads.begin();
  for (std::size_t i = 0; i < recording.ops.size() && read != recording.reads.end(); ++i) {
    const trace::Op& op = recording.ops[i];
    if (read->op != i) {
      for (const trace::BufferId buffer : written_by(recording, op)) {
        last_write[buffer] = static_cast<std::int64_t>(i);
      }
      continue;
    }
    std::int64_t after = earliest.empty() ? -1 : earliest.back();
    for (const trace::Value& value : op.inputs) {
      for_each_tensor(value, [&](trace::TensorId id) {
        if (id == trace::kNoTensor) return;
        const trace::BufferId buffer = recording.tensors[id].buffer;
        after = std::max({after, last_write[buffer], lifetimes[buffer].defined});
      });
    }
    earliest.push_back(after);
    ++read;
  }
  return earliest;
}

}  // namespace steptape::replayer
