#include "tests/replayer/awkward.h"

#include <ATen/ops/randn.h>

#include <bit>
#include <cstdint>
#include <limits>

namespace steptape::tests {

at::Tensor awkward(at::IntArrayRef sizes) {
  using Limits = std::numeric_limits<float>;
  static const std::vector<float> special = {0.0F,
                                             -0.0F,
                                             Limits::quiet_NaN(),
                                             -Limits::quiet_NaN(),
                                             std::bit_cast<float>(0x7fc01234U),
                                             Limits::infinity(),
                                             -Limits::infinity(),
                                             Limits::denorm_min(),
                                             -1e-39F,
                                             Limits::max(),
                                             Limits::min()};
  static std::size_t calls = 0;
  at::Tensor tensor = at::randn(sizes);
  float* const elements = tensor.mutable_data_ptr<float>();
  std::size_t next = 7 * ++calls;
  for (std::int64_t i = 0; i < tensor.numel(); i += 3)
    elements[i] = special[next++ % special.size()];
  return tensor;
}

at::Tensor sometimes_awkward(at::IntArrayRef sizes) {
  static std::size_t calls = 0;
  return ++calls % 2 == 0 ? awkward(sizes) : at::randn(sizes);
}

}  // namespace steptape::tests
