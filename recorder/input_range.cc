#include "recorder/input_range.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "live/device_bytes.h"
#include "live/tensors.h"

namespace steptape::recorder {
namespace {

using Range = std::pair<std::int64_t, std::int64_t>;

template <typename T>
Range range_of_elements(const at::Tensor& tensor) {
  const auto* data = static_cast<const T*>(tensor.const_data_ptr());
  const auto sizes = tensor.sizes();
  const auto strides = tensor.strides();
  T low = std::numeric_limits<T>::max();
  T high = std::numeric_limits<T>::lowest();
  std::vector<std::int64_t> position(sizes.size(), 0);
  for (std::int64_t left = tensor.numel(), at = 0; left > 0; --left) {
    low = std::min(low, data[at]);
    high = std::max(high, data[at]);
    for (std::size_t d = sizes.size(); d-- > 0;) {
      at += strides[d];
      if (++position[d] < sizes[d]) break;
      at -= strides[d] * sizes[d];
      position[d] = 0;
    }
  }
  return {static_cast<std::int64_t>(low), static_cast<std::int64_t>(high)};
}

}  // namespace

std::optional<Range> range_of(const at::Tensor& tensor) {
  if (!tensor.defined() || live::unplannable_kind(tensor)) return std::nullopt;
  if (tensor.numel() == 0 || live::foreign_device(tensor)) return std::nullopt;
  if (!tensor.is_cpu()) {
    if (!at::isIntegralType(tensor.scalar_type(), false)) return std::nullopt;
    const live::Unseen unseen;
    return range_of(tensor.to(at::kCPU));
  }
  switch (tensor.scalar_type()) {
    case at::kByte:
      return range_of_elements<std::uint8_t>(tensor);
    case at::kChar:
      return range_of_elements<std::int8_t>(tensor);
    case at::kShort:
      return range_of_elements<std::int16_t>(tensor);
    case at::kInt:
      return range_of_elements<std::int32_t>(tensor);
    case at::kLong:
      return range_of_elements<std::int64_t>(tensor);
    default:
      return std::nullopt;
  }
}

}  // namespace steptape::recorder
