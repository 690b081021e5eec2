#pragma once

#include <array>
#include <cstddef>

#include "trace/value.h"

namespace steptape::trace {

/// The values of a number that moves at which a plan was compared with the eager step scalar by
/// scalar. After so many different ones any value is taken.
class ProvedValues {
 public:
  static constexpr std::size_t kEnough = 3;

  bool is_trusted() const { return count_ == kEnough; }
  bool is_among(double value) const {
    for (std::size_t i = 0; i < count_; ++i) {
      if (Real{values_[i]} == Real{value}) return true;
    }
    return false;
  }
  bool holds(double value) const { return is_trusted() || is_among(value); }
  void add(double value) {
    if (!holds(value)) values_[count_++] = value;
  }

 private:
  std::array<double, kEnough> values_{};
  std::size_t count_ = 0;
};

}  // namespace steptape::trace
