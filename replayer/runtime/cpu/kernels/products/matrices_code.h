#pragma once

#include <cstddef>

#include "replayer/runtime/cpu/kernels/products/matrices.h"

namespace steptape::replayer::cpu::matrices {

/// What `Code` is made of. `Processor::Vector` holds 8 or 16 elements, `Processor::Bits` as many
/// integers. Each file that makes it is compiled with options of its own and for a type of its own,
/// so that none of it is code that other files run.
template <typename Processor>
class Multiplication {
 public:
  static std::int64_t room(const Product& product) {
    const bool is_ready = product.b_column == 1 && product.columns % kShort == 0;
    return is_ready ? 0 : product.depth * width_of(product);
  }

  /// `b` row by row, with zeros up to whole short vectors.
  static void pack(const Product& product) {
    const std::int64_t width = width_of(product);
    const std::int64_t columns = product.columns / kShort * kShort;
    std::int64_t p = 0;
    if (product.b_row == 1) {
      for (; p + kShort <= product.depth; p += kShort) {
        for (std::int64_t j = 0; j < columns; j += kShort) {
          transpose(product.b + p + j * product.b_column, product.b_column,
                    product.packed + p * width + j, width);
        }
      }
    }
    const std::int64_t transposed = p;
    for (p = 0; p < product.depth; ++p) {
      float* const to = product.packed + p * width;
      const float* const from = product.b + p * product.b_row;
      for (std::int64_t j = p < transposed ? columns : 0; j < product.columns; ++j) {
        to[j] = from[j * product.b_column];
      }
      for (std::int64_t j = product.columns; j < width; ++j) to[j] = 0;
    }
  }

  static bool multiply(const Product& product) {
    const bool is_packed = room(product) != 0;
    const Multiplication all(product, is_packed ? product.packed : product.b,
                             is_packed ? width_of(product) : product.b_row);
    Largest largest;
    std::int64_t i = 0;
    for (; i + 4 <= product.rows; i += 4) all.rows<4>(i, largest);
    if (i + 2 <= product.rows) {
      all.rows<2>(i, largest);
      i += 2;
    }
    if (i < product.rows) all.rows<1>(i, largest);
    return !largest.is_nan();
  }

 private:
  static constexpr std::int64_t kShort = 8;
  using Short = float __attribute__((vector_size(kShort * sizeof(float))));
  using ShortBits = std::int32_t __attribute__((vector_size(kShort * sizeof(std::int32_t))));
  using Long = typename Processor::Vector;

  template <typename Vector>
  static constexpr std::int64_t kLanesOf = sizeof(Vector) / sizeof(float);

  /// By lane, the largest magnitude, as the integer that has its bits: those of NaNs lie above that
  /// of infinity.
  struct Largest {
    typename Processor::Bits in_long = {};
    ShortBits in_short = {};

    auto& of(const Long&) { return in_long; }
    template <typename Vector>
    auto& of(const Vector&) {
      return in_short;
    }
    bool is_nan() const {
      bool is_nan = false;
      for (int lane = 0; lane < kLanesOf<Long>; ++lane) is_nan |= in_long[lane] > kInfinity;
      for (int lane = 0; lane < kShort; ++lane) is_nan |= in_short[lane] > kInfinity;
      return is_nan;
    }

    template <typename Bits, typename Vector>
    static inline __attribute__((always_inline)) void raise(Bits& largest, const Vector& elements) {
      const Bits magnitude = __builtin_bit_cast(Bits, elements) & 0x7fffffff;
      largest = largest > magnitude ? largest : magnitude;
    }

    static constexpr std::int32_t kInfinity = 0x7f800000;
  };

  Multiplication(const Product& product, const float* b, std::int64_t b_row)
      : product_(product), b_(b), b_row_(b_row) {}

  template <typename Vector>
  static inline __attribute__((always_inline)) Vector load(const float* from) {
    Vector vector;
    __builtin_memcpy(&vector, from, sizeof vector);
    return vector;
  }

  static std::int64_t width_of(const Product& product) {
    return (product.columns + kShort - 1) / kShort * kShort;
  }

  /// Eight columns of eight elements each, `next` apart, as rows that lie `width` apart.
  static inline __attribute__((always_inline)) void transpose(const float* from, std::int64_t next,
                                                              float* to, std::int64_t width) {
    Short in[kShort], pairs[kShort], quads[kShort];
#pragma GCC unroll 8
    for (int i = 0; i < kShort; ++i) in[i] = load<Short>(from + i * next);
#pragma GCC unroll 4
    for (int i = 0; i < kShort; i += 2) {
      pairs[i] = __builtin_shufflevector(in[i], in[i + 1], 0, 8, 1, 9, 4, 12, 5, 13);
      pairs[i + 1] = __builtin_shufflevector(in[i], in[i + 1], 2, 10, 3, 11, 6, 14, 7, 15);
    }
#pragma GCC unroll 2
    for (int i = 0; i < kShort; i += 4) {
      for (int k = 0; k < 2; ++k) {
        const Short a = pairs[i + k], c = pairs[i + k + 2];
        quads[i + 2 * k] = __builtin_shufflevector(a, c, 0, 1, 8, 9, 4, 5, 12, 13);
        quads[i + 2 * k + 1] = __builtin_shufflevector(a, c, 2, 3, 10, 11, 6, 7, 14, 15);
      }
    }
#pragma GCC unroll 4
    for (int i = 0; i < kShort / 2; ++i) {
      const Short a = quads[i], c = quads[i + 4];
      const Short low = __builtin_shufflevector(a, c, 0, 1, 2, 3, 8, 9, 10, 11);
      const Short high = __builtin_shufflevector(a, c, 4, 5, 6, 7, 12, 13, 14, 15);
      __builtin_memcpy(to + i * width, &low, sizeof low);
      __builtin_memcpy(to + (i + 4) * width, &high, sizeof high);
    }
  }

  /// Of the last vector of a row.
  enum class End { kWhole, kTail };

  /// `kRows` by `kVectors` vectors from row `i` and column `j` on, or `tail` columns of one.
  template <typename Vector, int kRows, int kVectors, End kEnd = End::kWhole>
  inline __attribute__((always_inline)) void block(std::int64_t i, std::int64_t j, Largest& largest,
                                                   std::size_t tail = 0) const {
    constexpr std::int64_t kLanes = kLanesOf<Vector>;
    Vector sums[kRows][kVectors] = {};
    const float* a = product_.a + i * product_.a_row;
    const float* at = b_ + j;
    for (std::int64_t p = 0; p < product_.depth; ++p, a += product_.a_column, at += b_row_) {
      Vector row[kVectors];
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) row[v] = load<Vector>(at + v * kLanes);
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        const float factor = a[r * product_.a_row];
#pragma GCC unroll 8
        for (int v = 0; v < kVectors; ++v) sums[r][v] += factor * row[v];
      }
    }
    // what a store of floats cannot touch, as far as the compiler knows
    const float* const biases = product_.bias;
    float* const c = product_.c + i * product_.c_row + j;
    const std::int64_t c_row = product_.c_row;
    auto seen = largest.of(Vector{});
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      const std::size_t bytes = kEnd == End::kWhole ? sizeof(Vector) : tail * sizeof(float);
      Vector bias = {};
      if (biases != nullptr) __builtin_memcpy(&bias, biases + j + v * kLanes, bytes);
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        const Vector sum = bias + sums[r][v];  // without one, -0 becomes 0
        Vector written = {};                   // what is beyond the tail may be anything
        __builtin_memcpy(&written, &sum, bytes);
        Largest::raise(seen, written);
        __builtin_memcpy(c + r * c_row + v * kLanes, &sum, bytes);
      }
    }
    largest.of(Vector{}) = seen;
  }

  template <int kRows>
  void rows(std::int64_t i, Largest& largest) const {
    constexpr std::int64_t kLanes = kLanesOf<Long>;
    const std::int64_t columns = product_.columns;
    std::int64_t j = 0;
    if constexpr (kLanes > kShort) {  // it has the registers for it
      for (; j + 4 * kLanes <= columns; j += 4 * kLanes) block<Long, kRows, 4>(i, j, largest);
    }
    for (; j + 2 * kLanes <= columns; j += 2 * kLanes) block<Long, kRows, 2>(i, j, largest);
    for (; j + kLanes <= columns; j += kLanes) block<Long, kRows, 1>(i, j, largest);
    for (; j + kShort <= columns; j += kShort) block<Short, kRows, 1>(i, j, largest);
    if (j < columns) {
      block<Short, kRows, 1, End::kTail>(i, j, largest, static_cast<std::size_t>(columns - j));
    }
  }

  const Product& product_;
  const float* b_;
  std::int64_t b_row_;
};

template <typename Processor>
constexpr Code code_for() {
  using Compiled = Multiplication<Processor>;
  return {&Compiled::room, &Compiled::pack, &Compiled::multiply};
}

}  // namespace steptape::replayer::cpu::matrices
