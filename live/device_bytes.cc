#include "live/device_bytes.h"

#include <ATen/core/Tensor.h>
#include <c10/core/TensorImpl.h>

#include <cstring>

namespace steptape::live {
namespace {

c10::DispatchKeySet all_that_look() {
  return c10::autograd_dispatch_keyset_with_ADInplaceOrView | c10::autocast_dispatch_keyset |
         c10::DispatchKeySet({c10::DispatchKey::Fake, c10::DispatchKey::Python,
                              c10::DispatchKey::PythonTLSSnapshot,
                              c10::DispatchKey::PythonDispatcher});
}

at::Tensor bytes_at(void* address, c10::Device device, std::size_t bytes) {
  const auto key = device.is_cpu() ? c10::DispatchKey::CPU : c10::DispatchKey::CUDA;
  auto tensor = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(c10::Storage::use_byte_size_t(), bytes, at::DataPtr(address, device), nullptr,
                   /*resizable=*/false),
      c10::DispatchKeySet(key), caffe2::TypeMeta::Make<std::uint8_t>());
  tensor.unsafeGetTensorImpl()->set_sizes_contiguous({static_cast<std::int64_t>(bytes)});
  return tensor;
}

}  // namespace

Unseen::Unseen() : exclude_(all_that_look()) {}

void copy_bytes(void* to, c10::Device to_device, const void* from, c10::Device from_device,
                std::size_t bytes) {
  if (bytes == 0) return;
  if (to_device.is_cpu() && from_device.is_cpu()) {
    std::memcpy(to, from, bytes);
    return;
  }
  const Unseen unseen;
  bytes_at(to, to_device, bytes).copy_(bytes_at(const_cast<void*>(from), from_device, bytes));
}

std::vector<std::byte> bytes_on_host(const void* from, c10::Device device, std::size_t bytes) {
  std::vector<std::byte> host(bytes);
  copy_bytes(host.data(), c10::Device(c10::kCPU), from, device, bytes);
  return host;
}

trace::Blob blob_of(const c10::StorageImpl& storage) {
  if (storage.device().is_cpu()) return trace::make_blob(storage.data(), storage.nbytes());
  const std::vector<std::byte> host =
      bytes_on_host(storage.data(), storage.device(), storage.nbytes());
  return trace::make_blob(host.data(), host.size());
}

}  // namespace steptape::live
