#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

namespace steptape::tools {

/// The value below which the part `at` of them lies, between 0 and 1; one of them, of which there
/// must be some.
inline double quantile(std::vector<double> values, double at) {
  const auto place = values.begin() + std::lround(at * static_cast<double>(values.size() - 1));
  std::ranges::nth_element(values, place);
  return *place;
}

}  // namespace steptape::tools
