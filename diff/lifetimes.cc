#include "diff/lifetimes.h"

namespace steptape::diff {

std::vector<Lifetime> lifetimes_of(const trace::Recording& recording) {
  std::vector<Lifetime> lifetimes(recording.buffers.size());
  for (trace::Index i = 0; i < recording.ops.size(); ++i) {
    const auto use = [&](trace::TensorId id) {
      if (id == trace::kNoTensor) return;
      Lifetime& lifetime = lifetimes[recording.tensors[id].buffer];
      if (lifetime.first == trace::kNone) lifetime.first = i;
      lifetime.last = i;
    };
    for (const trace::Value& value : recording.ops[i].inputs) for_each_tensor(value, use);
    for (const trace::Value& value : recording.ops[i].outputs) for_each_tensor(value, use);
  }
  return lifetimes;
}

}  // namespace steptape::diff
