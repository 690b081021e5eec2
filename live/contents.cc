#include "live/contents.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/view_as_real.h>
#include <c10/core/TensorImpl.h>
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>
#include <c10/util/complex.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>

#include "live/tensors.h"

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

trace::Blob blob_of(const Memory& memory) {
  if (memory.device.is_cpu()) return trace::make_blob(memory.first, memory.bytes);
  const std::vector<std::byte> host = bytes_on_host(memory.first, memory.device, memory.bytes);
  return trace::make_blob(host.data(), host.size());
}

namespace {

template <typename Number>
bool any_nonfinite(const at::Tensor& tensor, std::size_t parts = 1) {
  const std::span<const Number> numbers(static_cast<const Number*>(tensor.const_data_ptr()),
                                        static_cast<std::size_t>(tensor.numel()) * parts);
  return std::ranges::any_of(
      numbers, [](Number number) { return !std::isfinite(static_cast<double>(number)); });
}

bool any_nonfinite_in(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::ScalarType::Float:
      return any_nonfinite<float>(tensor);
    case at::ScalarType::Double:
      return any_nonfinite<double>(tensor);
    case at::ScalarType::Half:
      return any_nonfinite<c10::Half>(tensor);
    case at::ScalarType::BFloat16:
      return any_nonfinite<c10::BFloat16>(tensor);
    case at::ScalarType::ComplexFloat:
      return any_nonfinite<float>(tensor, 2);
    case at::ScalarType::ComplexDouble:
      return any_nonfinite<double>(tensor, 2);
    default:
      return false;
  }
}

}  // namespace

bool has_nonfinite(const at::Tensor& tensor) {
  if (!tensor.defined() || unplannable_kind(tensor) || foreign_device(tensor)) return false;
  if (!tensor.is_cpu()) {
    const Unseen unseen;
    return any_nonfinite_in(tensor.to(at::kCPU).contiguous());
  }
  if (tensor.is_contiguous()) return any_nonfinite_in(tensor);
  const at::NoGradGuard no_grad;
  return any_nonfinite_in(tensor.detach().contiguous());
}

namespace {

/// Its elements on the host, one after the other.
at::Tensor elements_of(at::Tensor tensor) {
  tensor = tensor.to(at::kCPU);
  if (tensor.is_complex()) tensor = at::view_as_real(tensor.resolve_conj());
  return tensor.to(at::kDouble).contiguous();
}

}  // namespace

double relative_difference(const at::Tensor& a, const at::Tensor& b) {
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  if (a.sizes() != b.sizes() || a.scalar_type() != b.scalar_type()) return kInfinite;
  const Unseen unseen;
  const at::Tensor left = elements_of(a);
  const at::Tensor right = elements_of(b);
  const double* x = left.const_data_ptr<double>();
  const double* y = right.const_data_ptr<double>();
  double difference = 0;
  double largest = 0;
  for (std::int64_t i = 0; i < left.numel(); ++i) {
    if (x[i] == y[i] || (std::isnan(x[i]) && std::isnan(y[i]))) {
      if (std::isfinite(x[i])) largest = std::max(largest, std::fabs(x[i]));
      continue;
    }
    if (!std::isfinite(x[i]) || !std::isfinite(y[i])) return kInfinite;
    difference = std::max(difference, std::fabs(x[i] - y[i]));
    largest = std::max({largest, std::fabs(x[i]), std::fabs(y[i])});
  }
  return difference == 0 ? 0 : difference / largest;
}

}  // namespace steptape::live
