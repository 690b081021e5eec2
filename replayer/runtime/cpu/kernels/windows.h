#pragma once

#include <cstdint>

/// What max-pooling computes. Compiled for AVX2 and FMA: for processors that have them, and sharing
/// no code with other files.
namespace steptape::replayer::cpu::windows {

/// Of one of the two dimensions.
struct Side {
  std::int64_t in, out;  ///< elements
  std::int64_t kernel, stride, padding, dilation;
};

/// The largest element of each window of a plane and its place in the plane, height · width +
/// width; of equal ones the first, and of NaNs the last, as in ATen/native/cpu/MaxPoolKernel.cpp. A
/// plane has less than 2^31 elements.
void largest(const float* plane, const Side& height, const Side& width, float* out,
             std::int64_t* places);

}  // namespace steptape::replayer::cpu::windows
