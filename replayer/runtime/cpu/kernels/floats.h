#pragma once

#include <ATen/core/Tensor.h>

/// Where the elements of tensors of the plan lie now: what at::Tensor::data_ptr gives, without its
/// checks, which hold for the plan's tensors.
namespace steptape::replayer::cpu {

/// Of any dtype.
inline const void* elements_of(const at::Tensor& tensor) {
  const c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  const c10::StorageImpl* storage = impl->unsafe_storage().unsafeGetStorageImpl();
  return static_cast<const char*>(storage->data()) +
         impl->storage_offset() * static_cast<std::int64_t>(impl->itemsize());
}

inline const float* floats_of(const at::Tensor& tensor) {
  const c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  const c10::StorageImpl* storage = impl->unsafe_storage().unsafeGetStorageImpl();
  return static_cast<const float*>(storage->data()) + impl->storage_offset();
}

inline float* writable_floats_of(const at::Tensor& tensor) {
  const c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  c10::StorageImpl* storage = impl->unsafe_storage().unsafeGetStorageImpl();
  return static_cast<float*>(storage->mutable_data()) + impl->storage_offset();
}

}  // namespace steptape::replayer::cpu
