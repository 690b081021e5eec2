#include "replayer/runtime/cpu/kernels/sums.h"

namespace steptape::replayer::cpu::sums {
namespace {

using Vector = float __attribute__((vector_size(kLanes * sizeof(float))));

/// Columns of a float, and of a vector.
template <typename Lanes>
constexpr std::int64_t kWidth = 1;
template <>
constexpr std::int64_t kWidth<Vector> = kLanes;

template <typename Lanes>
inline __attribute__((always_inline)) Lanes load(const float* from) {
  Lanes lanes;
  __builtin_memcpy(&lanes, from, sizeof lanes);
  return lanes;
}

/// The power of two that is at least `size`, and 1 for less than 2, as ATen has it.
int log2_of(std::int64_t size) {
  return size <= 2 ? 1 : 64 - __builtin_clzll(static_cast<unsigned long long>(size - 1));
}

/// `kCount` sums at once: the k-th of in[r · row + k · next] over `rows` rows. Chunks of 16 or more
/// rows are added up first, then chunks of these, in four levels.
template <typename Lanes, int kCount>
inline __attribute__((always_inline)) void cascade(const float* in, std::int64_t row,
                                                   std::int64_t next, std::int64_t rows,
                                                   Lanes (&sums)[kCount]) {
  constexpr int kLevels = 4;
  const int power = log2_of(rows) / kLevels > 4 ? log2_of(rows) / kLevels : 4;
  const std::int64_t chunk = std::int64_t{1} << power;
  Lanes level[kLevels][kCount] = {};
  const auto add_row = [&](std::int64_t r) {
    for (int k = 0; k < kCount; ++k) level[0][k] += load<Lanes>(in + r * row + k * next);
  };
  std::int64_t r = 0;
  while (r + chunk <= rows) {
    for (std::int64_t j = 0; j < chunk; ++j, ++r) add_row(r);
    for (int l = 1; l < kLevels; ++l) {
      for (int k = 0; k < kCount; ++k) {
        level[l][k] += level[l - 1][k];
        level[l - 1][k] = Lanes{};
      }
      if ((r & ((chunk - 1) << (l * power))) != 0) break;
    }
  }
  for (; r < rows; ++r) add_row(r);
  for (int k = 0; k < kCount; ++k) {
    sums[k] = level[0][k];
    for (int l = 1; l < kLevels; ++l) sums[k] += level[l][k];
  }
}

/// One column of `Lanes`: every fourth row by itself, then the four sums.
template <typename Lanes>
inline __attribute__((always_inline)) Lanes column(const float* in, std::int64_t row,
                                                   std::int64_t rows) {
  constexpr int kPartial = 4;
  Lanes sums[kPartial];
  cascade<Lanes, kPartial>(in, row * kPartial, row, rows / kPartial, sums);
  for (std::int64_t r = rows / kPartial * kPartial; r < rows; ++r) {
    sums[0] += load<Lanes>(in + r * row);
  }
  for (int k = 1; k < kPartial; ++k) sums[0] += sums[k];
  return sums[0];
}

/// A sum of -0 becomes 0: ATen adds to zeros.
template <typename Lanes>
inline __attribute__((always_inline)) void store(Lanes sum, float* out) {
  const Lanes result = Lanes{} + sum;
  __builtin_memcpy(out, &result, sizeof result);
}

constexpr int kTogether = 4;

/// Groups of columns whose sums run side by side, as long as there are enough for one.
template <typename Lanes>
std::int64_t groups(const float* in, std::int64_t rows, std::int64_t columns, float* out) {
  std::int64_t c = 0;
  for (; c + kTogether * kWidth<Lanes> <= columns; c += kTogether * kWidth<Lanes>) {
    Lanes sums[kTogether];
    cascade<Lanes, kTogether>(in + c, columns, kWidth<Lanes>, rows, sums);
    for (int k = 0; k < kTogether; ++k) store(sums[k], out + c + k * kWidth<Lanes>);
  }
  return c;
}

}  // namespace

void down(const float* in, std::int64_t rows, std::int64_t columns, float* out) {
  std::int64_t c = 0;
  if (columns >= kLanes) {
    c = groups<Vector>(in, rows, columns, out);
    for (; c + kLanes <= columns; c += kLanes)
      store(column<Vector>(in + c, columns, rows), out + c);
  } else {
    c = groups<float>(in, rows, columns, out);
  }
  for (; c < columns; ++c) store(column<float>(in + c, columns, rows), out + c);
}

}  // namespace steptape::replayer::cpu::sums
