#include "guards/mismatch.h"

#include <utility>

namespace steptape::guards {
namespace {

using enum GuardKind;

std::string on_or_off(bool value) { return value ? "on" : "off"; }

}  // namespace

Verdict failed(GuardKind kind, std::string path, std::string expected, std::string found) {
  return {std::move(path), std::move(expected), std::move(found), kind};
}

Verdict failed(GuardKind kind, std::string path, std::int64_t expected, std::int64_t found) {
  return {std::move(path), std::to_string(expected), std::to_string(found), kind};
}

Verdict failed_flag(GuardKind kind, std::string path, bool expected) {
  return failed(kind, std::move(path), expected ? "true" : "false", expected ? "false" : "true");
}

bool is_on(const at::Tensor& tensor, const trace::Device& device) {
  const c10::Device found = tensor.device();
  if (device.kind == trace::DeviceKind::kCpu) return found.is_cpu();
  return device.kind == trace::DeviceKind::kCuda && found.is_cuda() &&
         found.index() == device.index;
}

bool has_geometry(const at::Tensor& tensor, const trace::Tensor& expected, at::ScalarType dtype) {
  return live::has_plain_keys(tensor) && tensor.layout() == at::kStrided &&
         tensor.scalar_type() == dtype && tensor.sizes() == at::IntArrayRef(expected.sizes) &&
         tensor.strides() == at::IntArrayRef(expected.strides) &&
         tensor.is_conj() == expected.conj && tensor.is_neg() == expected.neg &&
         tensor.unsafeGetTensorImpl()->is_wrapped_number() == expected.wrapped_number;
}

Verdict geometry_mismatch(const std::string& path, const trace::Tensor& expected,
                          const trace::Device& device, const at::Tensor& tensor) {
  if (!tensor.defined()) return failed(kPresence, path, "a tensor", "undefined");
  if (const auto kind = live::unplannable_kind(tensor))
    return failed(kTensorKind, path, "a plain tensor", *kind);
  if (live::foreign_device(tensor) || live::device_of(tensor.device()) != device) {
    return failed(kDevice, path + ".device", text_of(device), tensor.device().str());
  }
  const auto dtype = live::scalar_type_of(expected.dtype);
  if (tensor.scalar_type() != dtype) {
    return failed(kDtype, path + ".dtype", std::string(name_of(expected.dtype)),
                  std::string(name_of(live::dtype_of(tensor.scalar_type()))));
  }
  const auto dims = static_cast<std::int64_t>(expected.sizes.size());
  if (tensor.dim() != dims) return failed(kShape, path + ".dim", dims, tensor.dim());
  for (std::int64_t d = 0; d < dims; ++d) {
    const std::string at = "(" + std::to_string(d) + ")";
    if (tensor.size(d) != expected.sizes[d]) {
      return failed(kShape, path + ".size" + at, expected.sizes[d], tensor.size(d));
    }
  }
  for (std::int64_t d = 0; d < dims; ++d) {
    const std::string at = "(" + std::to_string(d) + ")";
    if (tensor.stride(d) != expected.strides[d]) {
      return failed(kStride, path + ".stride" + at, expected.strides[d], tensor.stride(d));
    }
  }
  if (tensor.is_conj() != expected.conj) {
    return failed(kTensorFlags, path + ".is_conj", on_or_off(expected.conj),
                  on_or_off(tensor.is_conj()));
  }
  if (tensor.is_neg() != expected.neg) {
    return failed(kTensorFlags, path + ".is_neg", on_or_off(expected.neg),
                  on_or_off(tensor.is_neg()));
  }
  if (tensor.unsafeGetTensorImpl()->is_wrapped_number() != expected.wrapped_number) {
    return failed(kTensorFlags, path + ".is_wrapped_number", on_or_off(expected.wrapped_number),
                  on_or_off(!expected.wrapped_number));
  }
  return {};
}

Verdict offset_mismatch(const std::string& path, const trace::Tensor& expected,
                        const at::Tensor& tensor) {
  if (tensor.storage_offset() == expected.offset) return {};
  return failed(kOffset, path + ".storage_offset", expected.offset, tensor.storage_offset());
}

Verdict bytes_mismatch(const std::string& path, const trace::Buffer& buffer,
                       const c10::StorageImpl& storage) {
  if (storage.nbytes() == buffer.bytes) return {};
  return failed(kMemory, path + ".storage().nbytes", static_cast<std::int64_t>(buffer.bytes),
                static_cast<std::int64_t>(storage.nbytes()));
}

Verdict hooks_mismatch(const std::string& path, const live::Hooks& expected,
                       const at::Tensor& tensor) {
  const live::Hooks hooks = live::hooks_of(*tensor.unsafeGetTensorImpl());
  if (hooks == expected) return {};
  const std::string found = hooks.text();
  return failed(GuardKind::kHooks, path + " (hooks)", expected.text(),
                found == expected.text() ? "others" : found);
}

Verdict alignment_mismatch(const std::string& path, const trace::Buffer& buffer,
                           const void* address) {
  const auto remainder = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(address) % 64);
  if (buffer.bytes == 0 || remainder == buffer.address_mod_64) return {};
  return failed(kAlignment, path + ".data_ptr modulo 64", buffer.address_mod_64, remainder);
}

Verdict result_mismatch(const std::string& path, const trace::Tensor& expected,
                        const trace::Buffer& buffer, const at::Tensor& result) {
  if (Verdict verdict = geometry_mismatch(path, expected, buffer.device, result); !verdict) {
    return verdict;
  }
  if (Verdict verdict = offset_mismatch(path, expected, result); !verdict) return verdict;
  const c10::StorageImpl& storage = *result.storage().unsafeGetStorageImpl();
  if (Verdict verdict = bytes_mismatch(path, buffer, storage); !verdict) return verdict;
  return failed(kMemory, path, "memory of its own", "that of another");
}

}  // namespace steptape::guards
