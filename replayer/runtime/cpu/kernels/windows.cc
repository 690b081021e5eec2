#include "replayer/runtime/cpu/kernels/windows.h"

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
