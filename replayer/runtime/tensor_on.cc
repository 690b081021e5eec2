#include "replayer/runtime/tensor_on.h"

#include <c10/core/CPUAllocator.h>
#include <c10/core/DeviceGuard.h>

#include <cstring>
#include <memory>
#include <optional>

#include "live/contents.h"
#include "live/tensors.h"

namespace steptape::replayer {
namespace {

void delete_block(void* block) { delete static_cast<at::DataPtr*>(block); }

}  // namespace

at::Tensor tensor_on(const c10::Storage& storage, const trace::Tensor& geometry,
                     std::int64_t first_byte) {
  auto tensor = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(storage),
      c10::DispatchKeySet(storage.device().is_cuda() ? c10::DispatchKey::CUDA
                                                     : c10::DispatchKey::CPU),
      c10::scalarTypeToTypeMeta(live::scalar_type_of(geometry.dtype)));
  c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  const auto item = static_cast<std::int64_t>(trace::bytes_of(geometry.dtype));
  impl->set_sizes_and_strides(geometry.sizes, geometry.strides,
                              first_byte / item + geometry.offset);
  if (geometry.conj) impl->_set_conj(true);
  if (geometry.neg) impl->_set_neg(true);
  if (geometry.wrapped_number) impl->set_wrapped_number(true);
  return tensor;
}

at::Tensor alias_of(const at::Tensor& base, const trace::Tensor& of_base,
                    const trace::Tensor& geometry) {
  const auto first_byte =
      static_cast<std::int64_t>(base.element_size()) * (base.storage_offset() - of_base.offset);
  return tensor_on(base.storage(), geometry, first_byte);
}

c10::Storage allocate(std::size_t bytes, std::uint8_t remainder, c10::Device device) {
  const bool is_a_certain_one = !device.is_cpu() && device.has_index();
  const c10::OptionalDeviceGuard on_device(is_a_certain_one ? std::optional(device) : std::nullopt);
  auto block =
      std::make_unique<at::DataPtr>(c10::GetAllocator(device.type())->allocate(bytes + 64));
  auto* first = static_cast<char*>(block->get());
  const auto now = reinterpret_cast<std::uintptr_t>(first) % 64;
  char* address = first + (remainder + 64 - now) % 64;
  const c10::Device found = block->device();
  return c10::Storage(c10::Storage::use_byte_size_t(), bytes,
                      at::DataPtr(address, block.release(), &delete_block, found), nullptr,
                      /*resizable=*/false);
}

c10::Storage allocate_like(const c10::Storage& storage) {
  const auto remainder = reinterpret_cast<std::uintptr_t>(storage.data()) % 64;
  return allocate(storage.nbytes(), static_cast<std::uint8_t>(remainder), storage.device());
}

c10::Storage allocate_with(std::span<const std::byte> content, std::uint8_t remainder,
                           c10::Device device) {
  const c10::Storage storage = allocate(content.size(), remainder, device);
  live::copy_bytes(storage.mutable_data(), device, content.data(), c10::Device(c10::kCPU),
                   content.size());
  return storage;
}

at::Tensor tensor_of_bytes(std::span<const std::byte> content, const trace::Tensor& geometry) {
  return tensor_on(allocate_with(content, 0, c10::kCPU), geometry);
}

at::Tensor tensor_of_bytes(std::span<const std::byte> content) {
  return tensor_of_bytes(content, {.buffer = 0,
                                   .dtype = trace::DType::kUInt8,
                                   .sizes = {static_cast<std::int64_t>(content.size())},
                                   .strides = {1}});
}

at::Tensor copied_tensor_on(const c10::Storage& storage, const trace::Tensor& geometry) {
  const c10::Storage copy = allocate_like(storage);
  live::copy_bytes(copy.mutable_data(), copy.device(), storage.data(), storage.device(),
                   storage.nbytes());
  return tensor_on(copy, geometry);
}

void copy_onto(const at::Tensor& from, const at::Tensor& to) {
  if (from.is_cpu() && to.is_cpu() && from.is_non_overlapping_and_dense()) {
    if (from.nbytes() != 0)
      std::memcpy(to.mutable_data_ptr(), from.const_data_ptr(), from.nbytes());
  } else {
    to.copy_(from);
  }
}

c10::Storage storage_within(const c10::Storage& whole, void* address, std::size_t bytes) {
  auto* keep = new c10::Storage(whole);
  return c10::Storage(
      c10::Storage::use_byte_size_t(), bytes,
      at::DataPtr(
          address, keep, [](void* held) { delete static_cast<c10::Storage*>(held); },
          whole.device()),
      nullptr, /*resizable=*/false);
}

c10::Storage storage_over(void* address, std::size_t bytes, c10::Device device) {
  return c10::Storage(c10::Storage::use_byte_size_t(), bytes, at::DataPtr(address, device), nullptr,
                      /*resizable=*/false);
}

}  // namespace steptape::replayer
