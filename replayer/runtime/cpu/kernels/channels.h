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
