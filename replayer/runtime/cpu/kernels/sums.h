#pragma once

#include <cstdint>

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
