#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/StorageImpl.h>
#include <c10/core/impl/COWDeleter.h>

#include <cstddef>
#include <optional>
#include <span>
#include <string>

#include "trace/model.h"

/// The user's torch tensors in trace's words. Nothing here keeps a tensor alive or calls an
/// operator.
namespace steptape::live {

/// Throws Error (unsupported) when the trace has no name for it (quantized types, bits).
trace::DType dtype_of(at::ScalarType type);
at::ScalarType scalar_type_of(trace::DType dtype);
trace::Device device_of(const c10::Device& device);
c10::Device device_of(const trace::Device& device);

/// Whether nothing in its keys is what unplannable_kind has a word for: a look at one word.
bool has_plain_keys(const at::Tensor& tensor) noexcept;
/// Why a tensor cannot stand in a plan: "sparse", "quantized", "nested", "meta", "a tensor
/// subclass", "a functorch wrapper", "a zero tensor", "opaque (mkldnn)", "without storage"; none
/// for a plain one. A plain tensor on a device other than CPU and CUDA is named by
/// `foreign_device`.
std::optional<std::string> unplannable_kind(const at::Tensor& tensor);
std::optional<std::string> foreign_device(const at::Tensor& tensor);

/// Geometry of `tensor`, which must be plain, as a tensor of buffer `buffer`.
trace::Tensor geometry_of(const at::Tensor& tensor, trace::BufferId buffer);

/// Address modulo 64 of the first byte of a storage; 0 for an empty one.
std::uint8_t address_mod_64(const c10::StorageImpl& storage);

/// Bytes on a device, or those of a storage.
struct Memory {
  Memory(const void* address, c10::Device on, std::size_t size)
      : first(address), device(on), bytes(size) {}
  Memory(const c10::StorageImpl& storage)
      : Memory(storage.data(), storage.device(), storage.nbytes()) {}

  const void* first;
  c10::Device device;
  std::size_t bytes;
};

/// Digest of memory of the CPU or of a CUDA device. Above 1 MiB it is sampled (64 blocks of 16 KiB,
/// first and last included): such a digest notices most changes, not all.
trace::Digest sampled_digest(const Memory& memory);
/// Digest of every byte of it.
trace::Digest full_digest(const Memory& memory);
/// Digest of a tensor's elements in logical order, whatever its strides.
trace::Digest digest_of(const at::Tensor& tensor);
/// The same with dtype and sizes: equal bytes in another shape are another result.
trace::Digest digest_with_shape(const at::Tensor& tensor);

/// Whether the memory of a storage is that of a lazy clone too (at::_lazy_clone): an op of torch
/// gives it memory of its own before it writes, and who writes by address must not.
inline bool is_lazily_shared(const c10::StorageImpl& storage) {
  return storage.data_ptr().get_deleter() == &c10::impl::cow::cow_deleter;
}

}  // namespace steptape::live
