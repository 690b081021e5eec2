#include "replayer/runtime/cpu/kernels/preparation.h"

#include <string_view>
#include <utility>

#include "replayer/runtime/tensor_on.h"

namespace steptape::replayer::cpu {
namespace {

constexpr std::string_view kNoBytes = "steptape: there are no bytes before the first run";

c10::Storage storage_without_bytes(const c10::Storage& like) {
  c10::Storage made = storage_over(nullptr, like.nbytes(), like.device());
  made.unsafeGetStorageImpl()->release_data_and_set_meta_custom_data_ptr_error_msg_(
      std::string(kNoBytes));
  return made;
}

}  // namespace

at::Tensor StandIns::of(const at::Tensor& tensor) {
  if (!tensor.defined()) return tensor;
  const auto known = tensors_.find(tensor.unsafeGetTensorImpl());
  if (known != tensors_.end()) return known->second;
  const c10::Storage& storage = tensor.storage();
  const auto [own, is_new] = storages_.try_emplace(storage.unsafeGetStorageImpl());
  if (is_new) own->second = storage_without_bytes(storage);
  auto made = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(own->second), tensor.key_set(),
                                                       tensor.dtype());
  c10::TensorImpl* impl = made.unsafeGetTensorImpl();
  impl->set_sizes_and_strides(tensor.sizes(), tensor.strides(), tensor.storage_offset());
  if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) impl->set_wrapped_number(true);
  tensors_.emplace(tensor.unsafeGetTensorImpl(), made);
  return made;
}

c10::IValue StandIns::of(const c10::IValue& value) {
  if (value.isTensor()) return of(value.toTensor());
  if (!value.isTensorList()) return value;
  c10::List<at::Tensor> tensors;
  for (const at::Tensor& tensor : value.toTensorVector()) tensors.push_back(of(tensor));
  return tensors;
}

bool StandIns::threw(const c10::Error& error) {
  return std::string_view(error.what_without_backtrace()).find(kNoBytes) != std::string_view::npos;
}

}  // namespace steptape::replayer::cpu
