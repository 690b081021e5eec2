#include "replayer/runtime/cpu/kernels/planes.h"

#include <immintrin.h>

namespace steptape::replayer::cpu::channels {
namespace {

using Floats = __m256;
using Doubles = __m256d;

/// Channels that are added up side by side, and elements of each that are taken at a time.
constexpr int kBlock = 8;

/// rows[i][k] and rows[k][i] change places.
inline __attribute__((always_inline)) void transpose(Floats (&rows)[kBlock]) {
  Floats pairs[kBlock], fours[kBlock];
  for (int i = 0; i < kBlock; i += 2) {
    pairs[i] = _mm256_unpacklo_ps(rows[i], rows[i + 1]);
    pairs[i + 1] = _mm256_unpackhi_ps(rows[i], rows[i + 1]);
  }
  for (int i = 0; i < kBlock; i += 4) {
    for (int k = 0; k < 2; ++k) {
      fours[i + 2 * k] = _mm256_shuffle_ps(pairs[i + k], pairs[i + k + 2], 0x44);
      fours[i + 2 * k + 1] = _mm256_shuffle_ps(pairs[i + k], pairs[i + k + 2], 0xEE);
    }
  }
  for (int i = 0; i < kBlock / 2; ++i) {
    rows[i] = _mm256_permute2f128_ps(fours[i], fours[i + kBlock / 2], 0x20);
    rows[i + kBlock / 2] = _mm256_permute2f128_ps(fours[i], fours[i + kBlock / 2], 0x31);
  }
}

/// Sums of term(x) over `kBlock` channels, each by one addition after the other.
struct Sums {
  Doubles of[2] = {};

  template <typename Term>
  inline __attribute__((always_inline)) void add_all(const Images& in, std::int64_t channel,
                                                     const Term& term) {
    for (std::int64_t n = 0; n < in.batch; ++n) {
      const float* const x = in.data + (n * in.channels + channel) * in.size;
      std::int64_t i = 0;
      for (; i + kBlock <= in.size; i += kBlock) {
        Floats rows[kBlock];
        for (int k = 0; k < kBlock; ++k) rows[k] = _mm256_loadu_ps(x + k * in.size + i);
        transpose(rows);
        for (const Floats& row : rows) add(term(row));
      }
      for (; i < in.size; ++i) {
        Floats row;
        for (int k = 0; k < kBlock; ++k) row[k] = x[k * in.size + i];
        add(term(row));
      }
    }
  }

  double at(int k) const { return of[k / 4][k % 4]; }

 private:
  inline __attribute__((always_inline)) void add(const Floats& row) {
    of[0] += _mm256_cvtps_pd(_mm256_castps256_ps128(row));
    of[1] += _mm256_cvtps_pd(_mm256_extractf128_ps(row, 1));
  }
};

/// Of `kBlock` channels.
void collect_block(const Images& in, std::int64_t channel, float* mean, float* squares) {
  const auto count = static_cast<double>(in.batch * in.size);
  Sums sum, square;
  sum.add_all(in, channel, [](const Floats& x) { return x; });
  Floats middle;
  for (int k = 0; k < kBlock; ++k) middle[k] = static_cast<float>(sum.at(k) / count);
  square.add_all(in, channel, [middle](const Floats& x) { return (x - middle) * (x - middle); });
  for (int k = 0; k < kBlock; ++k) {
    mean[channel + k] = middle[k];
    squares[channel + k] = static_cast<float>(square.at(k));
  }
}

/// Of one channel alone.
void collect_one(const Images& in, std::int64_t channel, float* mean, float* squares) {
  const auto sum_of = [&](const auto& term) {
    double sum = 0;
    for (std::int64_t n = 0; n < in.batch; ++n) {
      const float* const image = in.data + (n * in.channels + channel) * in.size;
      for (std::int64_t i = 0; i < in.size; ++i) sum += static_cast<double>(term(image[i]));
    }
    return sum;
  };
  const double sum = sum_of([](float x) { return x; });
  const auto middle = static_cast<float>(sum / static_cast<double>(in.batch * in.size));
  mean[channel] = middle;
  squares[channel] = static_cast<float>(sum_of([middle](float x) {
    const float difference = x - middle;
    return difference * difference;
  }));
}

}  // namespace

void collect(const Images& in, float* mean, float* squares) {
  std::int64_t c = 0;
  for (; c + kBlock <= in.channels; c += kBlock) collect_block(in, c, mean, squares);
  for (; c < in.channels; ++c) collect_one(in, c, mean, squares);
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

namespace steptape::replayer::cpu::windows {
namespace {

template <int kLanes>
struct Vector;
template <>
struct Vector<8> {
  using Floats = float __attribute__((vector_size(32)));
  using Ints = std::int32_t __attribute__((vector_size(32)));
};
template <>
struct Vector<4> {
  using Floats = float __attribute__((vector_size(16)));
  using Ints = std::int32_t __attribute__((vector_size(16)));
};

/// What a window takes of a dimension: elements `begin`, `begin` + dilation, ... below `end`.
struct Range {
  std::int64_t begin, end;
};

Range range_of(const Side& side, std::int64_t window) {
  Range range{window * side.stride - side.padding, 0};
  range.end = range.begin + (side.kernel - 1) * side.dilation + 1;
  if (range.end > side.in) range.end = side.in;
  while (range.begin < 0) range.begin += side.dilation;
  return range;
}

/// The windows without padding.
Range whole_windows(const Side& side) {
  const std::int64_t room = side.in - 1 - (side.kernel - 1) * side.dilation + side.padding;
  Range range{(side.padding + side.stride - 1) / side.stride,
              room < 0 ? 0 : room / side.stride + 1};
  if (range.end > side.out) range.end = side.out;
  if (range.begin > range.end) range.begin = range.end;
  return range;
}

/// One row of windows.
struct Row {
  const float* plane;
  Range lines;  ///< of the plane
  std::int64_t line_step;
  const Side& width;
  float* out;
  std::int64_t* places;

  void find(std::int64_t x) const {
    const Range columns = range_of(width, x);
    float best = -__builtin_inff();
    std::int64_t place = lines.begin * width.in + columns.begin;
    for (std::int64_t line = lines.begin; line < lines.end; line += line_step) {
      for (std::int64_t c = columns.begin; c < columns.end; c += width.dilation) {
        const float value = plane[line * width.in + c];
        if (!(value > best) && value == value) continue;
        best = value;
        place = line * width.in + c;
      }
    }
    out[x] = best;
    places[x] = place;
  }

  /// Windows `x` and those after it as long as `kLanes` of them end before `end`: side by side.
  template <int kLanes, int kStride>
  std::int64_t find_together(std::int64_t x, std::int64_t end) const {
    using Floats = typename Vector<kLanes>::Floats;
    using Ints = typename Vector<kLanes>::Ints;
    Ints steps;
    for (int i = 0; i < kLanes; ++i) steps[i] = i * kStride;
    for (; x + kLanes <= end; x += kLanes) {
      const std::int64_t left = x * kStride - width.padding;
      Floats best = Floats{} - __builtin_inff();
      Ints place = steps + static_cast<std::int32_t>(lines.begin * width.in + left);
      for (std::int64_t line = lines.begin; line < lines.end; line += line_step) {
        for (std::int64_t k = 0; k < width.kernel; ++k) {
          const std::int64_t at = line * width.in + left + k * width.dilation;
          const Floats value = every<Floats, kLanes, kStride>(plane + at);
          const Ints is_larger = (value > best) | (value != value);
          best = is_larger ? value : best;
          place = is_larger ? steps + static_cast<std::int32_t>(at) : place;
        }
      }
      __builtin_memcpy(out + x, &best, sizeof best);
      for (int i = 0; i < kLanes; ++i) places[x + i] = place[i];
    }
    return x;
  }

  /// Elements at a distance of `kStride`. None after the last of them is read.
  template <typename Floats, int kLanes, int kStride>
  static inline __attribute__((always_inline)) Floats every(const float* from) {
    Floats first;
    __builtin_memcpy(&first, from, sizeof first);
    if constexpr (kStride == 1) {
      return first;
    } else {
      Floats last;
      __builtin_memcpy(&last, from + kLanes - 1, sizeof last);
      if constexpr (kLanes == 4) {
        return __builtin_shufflevector(first, last, 0, 2, 5, 7);
      } else {
        return __builtin_shufflevector(first, last, 0, 2, 4, 6, 9, 11, 13, 15);
      }
    }
  }

  template <int kStride>
  std::int64_t find_blocks(const Range& whole) const {
    return find_together<4, kStride>(find_together<8, kStride>(whole.begin, whole.end), whole.end);
  }

  void find_all(const Range& whole) const {
    for (std::int64_t x = 0; x < whole.begin; ++x) find(x);
    std::int64_t x = whole.begin;
    if (width.stride == 1) x = find_blocks<1>(whole);
    if (width.stride == 2) x = find_blocks<2>(whole);
    for (; x < width.out; ++x) find(x);
  }
};

}  // namespace

void largest(const float* plane, const Side& height, const Side& width, float* out,
             std::int64_t* places) {
  const Range whole = whole_windows(width);
  for (std::int64_t y = 0; y < height.out; ++y, out += width.out, places += width.out) {
    Row{plane, range_of(height, y), height.dilation, width, out, places}.find_all(whole);
  }
}

}  // namespace steptape::replayer::cpu::windows
