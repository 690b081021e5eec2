#include "trace/lifetimes.h"

namespace steptape::trace {

std::vector<Lifetime> lifetimes_of(const Recording& recording) {
  std::vector<Lifetime> lifetimes(recording.buffers.size());
  for (Index i = 0; i < recording.ops.size(); ++i) {
    const auto use = [&](TensorId id) {
      if (id == kNoTensor) return;
      Lifetime& lifetime = lifetimes[recording.tensors[id].buffer];
      if (lifetime.first == kNone) lifetime.first = i;
      lifetime.last = i;
    };
    for (const Value& value : recording.ops[i].inputs) for_each_tensor(value, use);
    for (const Value& value : recording.ops[i].outputs) for_each_tensor(value, use);
  }
  return lifetimes;
}

}  // namespace steptape::trace
