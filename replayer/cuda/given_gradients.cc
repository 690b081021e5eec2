#include "replayer/cuda/given_gradients.h"

#include <c10/core/Allocator.h>

#include <utility>

#include "live/device_bytes.h"
#include "live/tensors.h"
#include "replayer/run/tensor_on.h"

namespace steptape::replayer::cuda {

at::Tensor GivenGradients::give(const void* plan, trace::BufferId buffer, const at::Tensor& own) {
  const c10::Storage storage =
      storage_within(own.storage(), own.storage().mutable_data(), own.storage().nbytes());
  at::Tensor gradient = tensor_on(storage, live::geometry_of(own, 0));
  given_[{plan, buffer}] = gradient;
  return gradient;
}

void GivenGradients::move_out() {
  for (auto& [place, gradient] : given_) {
    const c10::Storage& storage = gradient.storage();
    const bool is_held =
        gradient.use_count() > 1 || gradient.weak_use_count() > 1 || storage.use_count() > 1;
    if (!is_held) continue;
    c10::Allocator* allocator = c10::GetAllocator(storage.device_type());
    at::DataPtr own = allocator->allocate(storage.nbytes());
    live::copy_bytes(own.get(), storage.device(), storage.data(), storage.device(),
                     storage.nbytes());
    storage.unsafeGetStorageImpl()->set_data_ptr_noswap(std::move(own));
  }
  given_.clear();
}

}  // namespace steptape::replayer::cuda
