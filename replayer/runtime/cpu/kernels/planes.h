#pragma once

#include <cstdint>

/// What batch normalisation computes of images channel by channel, [batch, channels, image].
/// Compiled for AVX2 and FMA: for processors that have them, and sharing no code with other files.
namespace steptape::replayer::cpu::channels {

struct Images {
  const float* data;
  std::int64_t batch, channels, size;  ///< `size` elements are an image
};

/// Of each channel the mean, and the sum of squares of what differs from it. Both are added up one
/// element after the other in double precision, as in ATen/native/cpu/batch_norm_kernel.cpp.
void collect(const Images& in, float* mean, float* squares);

/// out = in · factor + term, rounded once, with a factor and a term of each channel.
void scale(const Images& in, const float* factor, const float* term, float* out);

}  // namespace steptape::replayer::cpu::channels

/// Sums in the order in which ATen adds (ATen/native/cpu/SumKernel.cpp), which decides their last
/// bits. Compiled for AVX2 and FMA: for processors that have them, and sharing no code with other
/// files.
namespace steptape::replayer::cpu::sums {

/// Elements of the vectors that ATen's kernel adds with.
inline constexpr std::int64_t kLanes = 8;

/// out[c] = 0 + the sum of in[r · columns + c] over all rows r; columns >= 2. Where the sum is a
/// NaN it may be another one than ATen's.
void down(const float* in, std::int64_t rows, std::int64_t columns, float* out);

}  // namespace steptape::replayer::cpu::sums

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
