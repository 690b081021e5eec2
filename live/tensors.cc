#include "live/tensors.h"

#include <c10/core/DispatchKeySet.h>
#include <c10/util/StringUtil.h>

#include <array>
#include <utility>

#include "steptape/error.h"

namespace steptape::live {
namespace {

constexpr std::array<std::pair<at::ScalarType, trace::DType>, 18> kDTypes{{
    {at::ScalarType::Bool, trace::DType::kBool},
    {at::ScalarType::Byte, trace::DType::kUInt8},
    {at::ScalarType::Char, trace::DType::kInt8},
    {at::ScalarType::Short, trace::DType::kInt16},
    {at::ScalarType::Int, trace::DType::kInt32},
    {at::ScalarType::Long, trace::DType::kInt64},
    {at::ScalarType::Half, trace::DType::kFloat16},
    {at::ScalarType::BFloat16, trace::DType::kBFloat16},
    {at::ScalarType::Float, trace::DType::kFloat32},
    {at::ScalarType::Double, trace::DType::kFloat64},
    {at::ScalarType::ComplexFloat, trace::DType::kComplex64},
    {at::ScalarType::ComplexDouble, trace::DType::kComplex128},
    {at::ScalarType::UInt16, trace::DType::kUInt16},
    {at::ScalarType::UInt32, trace::DType::kUInt32},
    {at::ScalarType::UInt64, trace::DType::kUInt64},
    {at::ScalarType::Float8_e4m3fn, trace::DType::kFloat8E4M3FN},
    {at::ScalarType::Float8_e5m2, trace::DType::kFloat8E5M2},
    {at::ScalarType::ComplexHalf, trace::DType::kComplex32},
}};

bool has_trace_dtype(at::ScalarType type) noexcept {
  for (const auto& [scalar, dtype] : kDTypes) {
    if (scalar == type) return true;
  }
  return false;
}

constexpr c10::DispatchKeySet kFunctorch{
    c10::DispatchKey::FuncTorchBatched, c10::DispatchKey::FuncTorchGradWrapper,
    c10::DispatchKey::Functionalize, c10::DispatchKey::BatchedNestedTensor,
    c10::DispatchKey::Batched};

std::optional<std::string> kind_of_layout(const at::Tensor& tensor) {
  if (tensor.layout() == at::kStrided) return std::nullopt;
  if (tensor.layout() == at::kMkldnn) return "opaque (mkldnn)";
  if (tensor.layout() == at::kJagged) return "nested";
  return "sparse";
}

/// Named tensors exist up to torch 2.14.
template <typename Tensor>
bool has_names(const Tensor& tensor) {
  if constexpr (requires { tensor.has_names(); }) {
    return tensor.has_names();
  } else {
    return false;
  }
}

/// The key that they have.
template <typename Key>
constexpr c10::DispatchKeySet named_keys() {
  if constexpr (requires { Key::Named; }) {
    return c10::DispatchKeySet(Key::Named);
  } else {
    return {};
  }
}

}  // namespace

trace::DType dtype_of(at::ScalarType type) {
  for (const auto& [scalar, dtype] : kDTypes) {
    if (scalar == type) return dtype;
  }
  throw Error(ErrorCode::kUnsupported,
              c10::str("a trace has no name for the dtype ", c10::toString(type)));
}

at::ScalarType scalar_type_of(trace::DType dtype) {
  for (const auto& [scalar, candidate] : kDTypes) {
    if (candidate == dtype) return scalar;
  }
  throw Error(ErrorCode::kUnsupported,
              c10::str("LibTorch has no dtype with the number ", static_cast<int>(dtype)));
}

trace::Device device_of(const c10::Device& device) {
  const auto index = static_cast<std::int32_t>(device.has_index() ? device.index() : 0);
  switch (device.type()) {
    case c10::DeviceType::CPU:
      return {trace::DeviceKind::kCpu, 0};
    case c10::DeviceType::CUDA:
      return {trace::DeviceKind::kCuda, index};
    case c10::DeviceType::Meta:
      return {trace::DeviceKind::kMeta, 0};
    default:
      return {trace::DeviceKind::kOther, index};
  }
}

c10::Device device_of(const trace::Device& device) {
  const auto index = static_cast<c10::DeviceIndex>(device.index);
  switch (device.kind) {
    case trace::DeviceKind::kCpu:
      return c10::Device(c10::DeviceType::CPU);
    case trace::DeviceKind::kCuda:
      return c10::Device(c10::DeviceType::CUDA, index);
    case trace::DeviceKind::kMeta:
      return c10::Device(c10::DeviceType::Meta);
    case trace::DeviceKind::kOther:
      break;
  }
  throw Error(ErrorCode::kUnsupported, "the trace names a device that no backend serves");
}

bool has_plain_keys(const at::Tensor& tensor) noexcept {
  constexpr c10::DispatchKeySet kOthers =
      kFunctorch | named_keys<c10::DispatchKey>() |
      c10::DispatchKeySet{c10::DispatchKey::Python, c10::DispatchKey::ZeroTensor,
                          c10::DispatchKey::NestedTensor, c10::DispatchKey::Quantized,
                          c10::DispatchKey::Sparse};
  return !tensor.key_set().has_any(kOthers);
}

std::optional<std::string> unplannable_kind(const at::Tensor& tensor) {
  const c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
  const c10::DispatchKeySet keys = impl.key_set();
  if (keys.has(c10::DispatchKey::Python)) return "a tensor subclass";
  if (keys.has_any(kFunctorch)) return "a functorch wrapper";
  if (tensor.is_nested()) return "nested";
  if (auto kind = kind_of_layout(tensor)) return kind;
  if (tensor.is_quantized()) return "quantized";
  if (tensor.is_meta()) return "meta";
  if (keys.has(c10::DispatchKey::ZeroTensor)) return "a zero tensor";
  if (impl.has_symbolic_sizes_strides()) return "of symbolic sizes";
  if (has_names(tensor)) return "of named dimensions";
  if (!tensor.has_storage()) return "without storage";
  if (!has_trace_dtype(tensor.scalar_type())) {
    return c10::str("of dtype ", c10::toString(tensor.scalar_type()));
  }
  return std::nullopt;
}

std::optional<std::string> foreign_device(const at::Tensor& tensor) {
  if (tensor.is_cpu() || tensor.is_cuda()) return std::nullopt;
  return tensor.device().str();
}

trace::Tensor geometry_of(const at::Tensor& tensor, trace::BufferId buffer) {
  trace::Tensor geometry;
  geometry.buffer = buffer;
  geometry.dtype = dtype_of(tensor.scalar_type());
  geometry.sizes.assign(tensor.sizes().begin(), tensor.sizes().end());
  geometry.strides.assign(tensor.strides().begin(), tensor.strides().end());
  geometry.offset = tensor.storage_offset();
  geometry.conj = tensor.is_conj();
  geometry.neg = tensor.is_neg();
  geometry.wrapped_number = tensor.unsafeGetTensorImpl()->is_wrapped_number();
  return geometry;
}

std::uint8_t address_mod_64(const c10::StorageImpl& storage) {
  if (storage.nbytes() == 0) return 0;
  return static_cast<std::uint8_t>(reinterpret_cast<std::uintptr_t>(storage.data()) % 64);
}

trace::Digest digest_with_shape(const at::Tensor& tensor) {
  trace::Digest digest = digest_of(tensor);
  std::uint64_t shape = static_cast<std::uint64_t>(tensor.scalar_type()) + 1;
  for (const std::int64_t size : tensor.sizes()) {
    shape = shape * 1000003 + static_cast<std::uint64_t>(size);
  }
  digest.high ^= shape;
  return digest;
}

}  // namespace steptape::live
