#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "trace/value.h"

namespace steptape::trace {

/// The values of a number that moves at which a plan was compared with the eager step scalar by
/// scalar. After so many different ones any value is taken, but for the first that is negative and
/// those at which LibTorch's code likes to turn (an exponent of 2, a slope of 0): each is proved
/// once.
class ProvedValues {
 public:
  static constexpr std::size_t kEnough = 3;

  bool is_trusted() const { return count_ == kEnough; }
  bool is_among(double value) const {
    for (std::size_t i = 0; i < count_; ++i) {
      if (Real{values_[i]} == Real{value}) return true;
    }
    return is_turn(value) && (turns_ & turn_of(value)) != 0;
  }
  bool holds(double value) const {
    return is_among(value) || (is_trusted() && (turn_of(value) & ~turns_) == 0);
  }
  void add(double value) {
    if (!is_trusted() && !is_among(value)) values_[count_++] = value;
    turns_ |= turn_of(value);
  }

 private:
  static constexpr std::array<double, 8> kTurns = {0, 1, -1, 2, -2, 3, 0.5, -0.5};
  static constexpr std::uint32_t kOfSign = 1U << 16U;

  static bool is_turn(double value) { return (turn_of(value) & ~kOfSign) != 0; }
  /// A bit for the value where it is a turn, and one for a value below zero.
  static std::uint32_t turn_of(double value) {
    std::uint32_t bits = value < 0 ? kOfSign : 0;
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
