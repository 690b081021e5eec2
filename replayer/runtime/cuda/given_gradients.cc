#include "replayer/runtime/cuda/given_gradients.h"

#include <c10/core/Allocator.h>

#include <algorithm>
#include <utility>

#include "live/contents.h"
#include "live/tensors.h"
#include "replayer/runtime/tensor_on.h"

namespace steptape::replayer::cuda {

at::Tensor GivenGradients::give(const void* plan, trace::BufferId buffer, const at::Tensor& own) {
  Given& given = given_[{plan, buffer}];
  if (!given.storage) {
    given.storage =
        storage_within(own.storage(), own.storage().mutable_data(), own.storage().nbytes());
  }
  return given.gradients.emplace_back(tensor_on(given.storage, live::geometry_of(own, 0)));
}

bool GivenGradients::Given::is_held() const {
  const auto is_users = [](const at::Tensor& gradient) {
    return gradient.use_count() > 1 || gradient.weak_use_count() > 1;
  };
  return storage.use_count() > gradients.size() + 1 || std::ranges::any_of(gradients, is_users);
}

void GivenGradients::move_out() {
  for (auto& [place, given] : given_) {
    if (!given.is_held()) continue;
    const c10::Storage& storage = given.storage;
    c10::Allocator* allocator = c10::GetAllocator(storage.device_type());
    at::DataPtr own = allocator->allocate(storage.nbytes());
    live::copy_bytes(own.get(), storage.device(), storage.data(), storage.device(),
                     storage.nbytes());
    storage.unsafeGetStorageImpl()->set_data_ptr_noswap(std::move(own));
  }
  given_.clear();
}

}  // namespace steptape::replayer::cuda
