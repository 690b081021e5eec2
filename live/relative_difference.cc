#include "live/relative_difference.h"

#include <ATen/ops/view_as_real.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "live/device_bytes.h"

namespace steptape::live {
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
