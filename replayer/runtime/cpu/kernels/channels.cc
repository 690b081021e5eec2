#include "replayer/runtime/cpu/kernels/channels.h"

namespace steptape::replayer::cpu::channels {
namespace {

/// Of `kCount` channels at once, so that their additions do not wait for each other.
template <int kCount>
inline __attribute__((always_inline)) void collect_some(const Images& in, std::int64_t channel,
                                                        float* mean, float* squares) {
  const auto count = static_cast<double>(in.batch * in.size);
  const std::int64_t image = in.channels * in.size;
  const float* const first = in.data + channel * in.size;
  double sum[kCount] = {};
  for (std::int64_t n = 0; n < in.batch; ++n) {
    const float* const at = first + n * image;
    for (std::int64_t i = 0; i < in.size; ++i) {
      for (int k = 0; k < kCount; ++k) sum[k] += static_cast<double>(at[k * in.size + i]);
    }
  }
  float middle[kCount];
  for (int k = 0; k < kCount; ++k) middle[k] = static_cast<float>(sum[k] / count);
  double square[kCount] = {};
  for (std::int64_t n = 0; n < in.batch; ++n) {
    const float* const at = first + n * image;
    for (std::int64_t i = 0; i < in.size; ++i) {
      for (int k = 0; k < kCount; ++k) {
        const float difference = at[k * in.size + i] - middle[k];
        square[k] += static_cast<double>(difference * difference);
      }
    }
  }
  for (int k = 0; k < kCount; ++k) {
    mean[channel + k] = middle[k];
    squares[channel + k] = static_cast<float>(square[k]);
  }
}

}  // namespace

void collect(const Images& in, float* mean, float* squares) {
  constexpr int kTogether = 8;
  std::int64_t c = 0;
  for (; c + kTogether <= in.channels; c += kTogether) {
    collect_some<kTogether>(in, c, mean, squares);
  }
  for (; c < in.channels; ++c) collect_some<1>(in, c, mean, squares);
}

void scale(const Images& in, const float* factor, const float* term, float* out) {
  const float* from = in.data;
  for (std::int64_t n = 0; n < in.batch; ++n) {
    for (std::int64_t c = 0; c < in.channels; ++c, from += in.size, out += in.size) {
      const float a = factor[c], b = term[c];
      for (std::int64_t i = 0; i < in.size; ++i) out[i] = __builtin_fmaf(from[i], a, b);
    }
  }
}

}  // namespace steptape::replayer::cpu::channels
