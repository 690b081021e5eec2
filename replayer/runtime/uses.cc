#include "replayer/runtime/uses.h"

namespace steptape::replayer {

Use Use::of(const at::Tensor& tensor, bool is_write) {
  const c10::StorageImpl* storage = tensor.storage().unsafeGetStorageImpl();
  const auto start = reinterpret_cast<std::uintptr_t>(storage->data());
  std::int64_t span = tensor.numel() == 0 ? 0 : 1;
  for (std::int64_t i = 0; span != 0 && i < tensor.dim(); ++i) {
    span += (tensor.size(i) - 1) * tensor.stride(i);
  }
  Use use;
  use.storage = start == 0 ? storage : nullptr;
  use.begin = start + static_cast<std::uintptr_t>(tensor.storage_offset()) * tensor.itemsize();
  use.end = use.begin + static_cast<std::uintptr_t>(span) * tensor.itemsize();
  use.is_write = is_write;
  return use;
}

void Uses::add(const Use& use) {
  longest_ = std::max(longest_, use.end - use.begin);
  for (auto [at, end] = uses_.equal_range(use.begin); at != end; ++at) {
    Use& known = at->second;
    if (known.end != use.end || known.by != use.by) continue;
    known.is_write = known.is_write || use.is_write;
    known.is_element = known.is_element && use.is_element;
    return;
  }
  uses_.emplace(use.begin, use);
}

void Uses::forget_covered(const Use& use) {
  auto at = uses_.lower_bound(use.begin);
  while (at != uses_.end() && at->first < use.end) {
    at = use.covers(at->second) ? uses_.erase(at) : std::next(at);
  }
}

}  // namespace steptape::replayer
