#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "trace/model.h"

namespace steptape::tools {

/// What a step cannot take less than, in microseconds on this machine and with this many threads:
/// its matrix products, convolutions and recurrent layers called bare, with warm caches, and the
/// bytes that every other op reads and writes, at the bandwidth of a cache. An estimate to hold a
/// replay against, and no bound: ops that are done together touch memory less often.
double floor_us(const trace::Recording& recording);
/// The same of each op.
std::vector<double> floors_us(const trace::Recording& recording);

/// The value below which the part `at` of them lies, between 0 and 1; one of them, of which there
/// must be some.
inline double quantile(std::vector<double> values, double at) {
  const auto place = values.begin() + std::lround(at * static_cast<double>(values.size() - 1));
  std::ranges::nth_element(values, place);
  return *place;
}

}  // namespace steptape::tools
