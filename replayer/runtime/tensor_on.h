#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "trace/model.h"

namespace steptape::replayer {

/// A new tensor object of this geometry on `storage`, whose buffer starts `first_byte` bytes into
/// it; a multiple of the element size. Without autograd history.
at::Tensor tensor_on(const c10::Storage& storage, const trace::Tensor& geometry,
                     std::int64_t first_byte = 0);

/// A result of this geometry in the memory of `base`, which is `of_base` in the recording: an
/// input's buffer starts where its memory is guarded, not where its storage does.
at::Tensor alias_of(const at::Tensor& base, const trace::Tensor& of_base,
                    const trace::Tensor& geometry);

/// `bytes` of new memory whose address has this remainder modulo 64, on the device, or where it has
/// no index on the current one of its kind.
c10::Storage allocate(std::size_t bytes, std::uint8_t remainder,
                      c10::Device device = c10::DeviceType::CPU);

/// As much as a storage has, on its device and with its remainder.
c10::Storage allocate_like(const c10::Storage& storage);

/// The same with these bytes of the host. Returns when they are there.
c10::Storage allocate_with(std::span<const std::byte> content, std::uint8_t remainder,
                           c10::Device device);

/// A tensor of this geometry on a copy of these bytes, in the host's memory.
at::Tensor tensor_of_bytes(std::span<const std::byte> content, const trace::Tensor& geometry);
/// The same of the bytes themselves.
at::Tensor tensor_of_bytes(std::span<const std::byte> content);
/// The same of one number, without dimensions.
template <typename Number>
at::Tensor tensor_of_number(const Number& number, trace::DType dtype) {
  return tensor_of_bytes(std::as_bytes(std::span(&number, 1)),
                         {.buffer = 0, .dtype = dtype, .sizes = {}, .strides = {}});
}

/// The same on a copy of the storage's bytes, on the same device.
at::Tensor copied_tensor_on(const c10::Storage& storage, const trace::Tensor& geometry);

/// Copies the elements of `from` into `to`, a tensor of the same geometry, and nothing between
/// them.
void copy_onto(const at::Tensor& from, const at::Tensor& to);

/// A storage over bytes of another one, which it keeps alive.
c10::Storage storage_within(const c10::Storage& whole, void* address, std::size_t bytes);

/// A storage over memory that somebody else owns.
c10::Storage storage_over(void* address, std::size_t bytes,
                          c10::Device device = c10::Device(c10::kCPU));

}  // namespace steptape::replayer
