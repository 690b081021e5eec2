#include "replayer/cpu/kernels/matrices.h"

namespace steptape::replayer::cpu::matrices {
namespace {

constexpr std::int64_t kLanes = 8;
using Vector = float __attribute__((vector_size(kLanes * sizeof(float))));
using Bits = std::int32_t __attribute__((vector_size(kLanes * sizeof(std::int32_t))));

inline __attribute__((always_inline)) Vector load(const float* from) {
  Vector vector;
  __builtin_memcpy(&vector, from, sizeof vector);
  return vector;
}

std::int64_t round_up(std::int64_t columns) { return (columns + kLanes - 1) / kLanes * kLanes; }

/// Rows of `b` that can be read as vectors as they lie.
bool is_ready(const Product& product) {
  return product.b_column == 1 && product.columns % kLanes == 0;
}

/// Eight columns of eight elements each, `next` apart, as rows that lie `width` apart.
inline __attribute__((always_inline)) void transpose(const float* from, std::int64_t next,
                                                     float* to, std::int64_t width) {
  Vector in[kLanes], pairs[kLanes], quads[kLanes];
#pragma GCC unroll 8
  for (int i = 0; i < kLanes; ++i) in[i] = load(from + i * next);
#pragma GCC unroll 4
  for (int i = 0; i < kLanes; i += 2) {
    pairs[i] = __builtin_shufflevector(in[i], in[i + 1], 0, 8, 1, 9, 4, 12, 5, 13);
    pairs[i + 1] = __builtin_shufflevector(in[i], in[i + 1], 2, 10, 3, 11, 6, 14, 7, 15);
  }
#pragma GCC unroll 2
  for (int i = 0; i < kLanes; i += 4) {
    for (int k = 0; k < 2; ++k) {
      const Vector a = pairs[i + k], c = pairs[i + k + 2];
      quads[i + 2 * k] = __builtin_shufflevector(a, c, 0, 1, 8, 9, 4, 5, 12, 13);
      quads[i + 2 * k + 1] = __builtin_shufflevector(a, c, 2, 3, 10, 11, 6, 7, 14, 15);
    }
  }
#pragma GCC unroll 4
  for (int i = 0; i < kLanes / 2; ++i) {
    const Vector a = quads[i], c = quads[i + 4];
    const Vector low = __builtin_shufflevector(a, c, 0, 1, 2, 3, 8, 9, 10, 11);
    const Vector high = __builtin_shufflevector(a, c, 4, 5, 6, 7, 12, 13, 14, 15);
    __builtin_memcpy(to + i * width, &low, sizeof low);
    __builtin_memcpy(to + (i + 4) * width, &high, sizeof high);
  }
}

/// `b` row by row, with zeros up to whole vectors.
void pack(const Product& product) {
  const std::int64_t width = round_up(product.columns);
  const std::int64_t columns = product.columns / kLanes * kLanes;
  std::int64_t p = 0;
  if (product.b_row == 1) {
    for (; p + kLanes <= product.depth; p += kLanes) {
      for (std::int64_t j = 0; j < columns; j += kLanes) {
        transpose(product.b + p + j * product.b_column, product.b_column,
                  product.scratch + p * width + j, width);
      }
    }
  }
  const std::int64_t transposed = p;
  for (p = 0; p < product.depth; ++p) {
    float* const to = product.scratch + p * width;
    const float* const from = product.b + p * product.b_row;
    for (std::int64_t j = p < transposed ? columns : 0; j < product.columns; ++j) {
      to[j] = from[j * product.b_column];
    }
    for (std::int64_t j = product.columns; j < width; ++j) to[j] = 0;
  }
}

/// The matrices of a product, `b` in whole vectors.
struct Ready {
  const Product& product;
  const float* b;
  std::int64_t b_row;

  /// `kRows` by `kVectors` · 8 elements; with `tail` columns only so many of the last vector.
  template <int kRows, int kVectors>
  inline __attribute__((always_inline)) Bits block(std::int64_t i, std::int64_t j,
                                                   std::int64_t tail) const {
    Vector sums[kRows][kVectors] = {};
    const float* a = product.a + i * product.a_row;
    const float* at = b + j;
    for (std::int64_t p = 0; p < product.depth; ++p, a += product.a_column, at += b_row) {
      Vector row[kVectors];
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) row[v] = load(at + v * kLanes);
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        const float factor = a[r * product.a_row];
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; ++v) sums[r][v] += factor * row[v];
      }
    }
    Bits is_nan = {};
    for (int v = 0; v < kVectors; ++v) {
      const bool is_whole = tail == 0 || v + 1 < kVectors;
      const std::int64_t count = is_whole ? kLanes : tail;
      Vector bias = {};
      const std::int64_t column = j + v * kLanes;
      if (product.bias != nullptr) {
        if (is_whole) {
          bias = load(product.bias + column);
        } else {
          __builtin_memcpy(&bias, product.bias + column,
                           static_cast<unsigned long>(count) * sizeof(float));
        }
      }
      for (int r = 0; r < kRows; ++r) {
        const Vector sum = bias + sums[r][v];  // without one, -0 becomes 0
        is_nan |= sum != sum;
        float* const to = product.c + (i + r) * product.c_row + column;
        if (is_whole) {
          __builtin_memcpy(to, &sum, sizeof sum);
        } else {
          __builtin_memcpy(to, &sum, static_cast<unsigned long>(count) * sizeof(float));
        }
      }
    }
    return is_nan;
  }

  template <int kRows>
  Bits rows(std::int64_t i) const {
    Bits is_nan = {};
    std::int64_t j = 0;
    for (; j + 2 * kLanes <= product.columns; j += 2 * kLanes) is_nan |= block<kRows, 2>(i, j, 0);
    for (; j + kLanes <= product.columns; j += kLanes) is_nan |= block<kRows, 1>(i, j, 0);
    if (j < product.columns) is_nan |= block<kRows, 1>(i, j, product.columns - j);
    return is_nan;
  }
};

}  // namespace

std::int64_t scratch_of(const Product& product) {
  return is_ready(product) ? 0 : product.depth * round_up(product.columns);
}

bool multiply(const Product& product) {
  const bool ready = is_ready(product);
  if (!ready) pack(product);
  const Ready all{product, ready ? product.b : product.scratch,
                  ready ? product.b_row : round_up(product.columns)};
  Bits is_nan = {};
  std::int64_t i = 0;
  for (; i + 4 <= product.rows; i += 4) is_nan |= all.rows<4>(i);
  if (i + 2 <= product.rows) {
    is_nan |= all.rows<2>(i);
    i += 2;
  }
  if (i < product.rows) is_nan |= all.rows<1>(i);
  std::int32_t any = 0;
  for (int lane = 0; lane < kLanes; ++lane) any |= is_nan[lane];
  return any == 0;
}

}  // namespace steptape::replayer::cpu::matrices
