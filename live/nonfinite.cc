#include "live/nonfinite.h"

#include <ATen/core/grad_mode.h>
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>
#include <c10/util/complex.h>

#include <algorithm>
#include <cmath>
#include <span>

#include "live/device_bytes.h"
#include "live/tensors.h"

namespace steptape::live {
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

}  // namespace steptape::live
