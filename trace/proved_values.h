#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>

#include "trace/value.h"

namespace steptape::trace {

/// The values of a number that moves at which a plan was compared with the eager step scalar by
/// scalar. After so many different ones any value is taken, but for those at which LibTorch's code
/// likes to turn (an exponent of 2, a slope of 0) and for the first of a range that it tells from
/// others (negative ones, and up to 1, up to 2, and above: norms), and the first that float32 does
/// not hold: each is proved once.
class ProvedValues {
 public:
  static constexpr std::size_t kEnough = 3;

  ProvedValues() = default;
  /// As a file keeps them: what `values` and `turns` gave. Of more than kEnough values the first
  /// count.
  ProvedValues(std::span<const double> values, std::uint32_t turns) {
    for (const double value : values) add(value);
    turns_ |= turns;
  }
  /// Different ones, at most kEnough, in the order in which they were proved.
  std::span<const double> values() const { return std::span(values_).first(count_); }
  /// A bit for each turn that was proved: 0 to 7 for 0, 1, -1, 2, -2, 3, 0.5 and -0.5, 8 to 11 for
  /// not a number, infinity, -infinity and -0.0, 16 to 19 for the ranges below 0, 1 and 2 and the
  /// rest, 20 for what float32 does not hold.
  std::uint32_t turns() const { return turns_; }
  friend bool operator==(const ProvedValues& a, const ProvedValues& b) {
    return std::ranges::equal(a.values(), b.values(), {}, to_bits, to_bits) && a.turns_ == b.turns_;
  }

  bool is_trusted() const { return count_ == kEnough; }
  bool is_among(double value) const {
    for (std::size_t i = 0; i < count_; ++i) {
      if (Real{values_[i]} == Real{value}) return true;
    }
    return (turns_ & turn_of(value) & ~kRanges) != 0;
  }
  /// Asked in each replay. The turns of all that were proved are among `turns_`.
  bool holds(double value) const {
    return is_trusted() ? (turn_of(value) & ~turns_) == 0 : is_among(value);
  }
  void add(double value) {
    if (!is_trusted() && !is_among(value)) values_[count_++] = value;
    turns_ |= turn_of(value);
  }

 private:
  static std::uint64_t to_bits(double value) { return std::bit_cast<std::uint64_t>(value); }

  static constexpr std::array<double, 8> kTurns = {0, 1, -1, 2, -2, 3, 0.5, -0.5};
  static constexpr std::uint32_t kRanges = 31U << 16U;

  /// A bit for the value where it is a turn, and those of the ranges that it lies in.
  static std::uint32_t turn_of(double value) {
    std::uint32_t bits = 1U << (value < 0 ? 16U : value < 1 ? 17U : value < 2 ? 18U : 19U);
    if (static_cast<double>(static_cast<float>(value)) != value) bits |= 1U << 20U;
    const double doubled = value * 2;
    // most numbers are none of the halves up to 3
    if (std::isfinite(value) && (std::abs(doubled) > 6 || doubled != std::trunc(doubled))) {
      return bits;
    }
    for (std::size_t i = 0; i < kTurns.size(); ++i) {
      if (Real{kTurns[i]} == Real{value}) bits |= 1U << i;
    }
    if (std::isnan(value)) bits |= 1U << 8U;
    if (std::isinf(value)) bits |= value > 0 ? 1U << 9U : 1U << 10U;
    if (Real{value} == Real{-0.0}) bits |= 1U << 11U;
    return bits;
  }

  std::array<double, kEnough> values_{};
  std::size_t count_ = 0;
  std::uint32_t turns_ = 0;
};

}  // namespace steptape::trace
