#include "session/verify/ulps.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace steptape::session {
namespace {

template <typename T>
double distance(T before, T a, T b) {
  if (a == b || (std::isnan(a) && std::isnan(b))) return 0;
  if (!std::isfinite(a) || !std::isfinite(b)) return std::numeric_limits<double>::infinity();
  T largest = std::max(std::fabs(a), std::fabs(b));
  if (std::isfinite(before)) largest = std::max(largest, std::fabs(before));
  const T next = std::nextafter(largest, std::numeric_limits<T>::infinity());
  const double ulp = std::isfinite(next)
                         ? static_cast<double>(next) - static_cast<double>(largest)
                         : static_cast<double>(largest) * std::numeric_limits<T>::epsilon();
  return std::fabs(static_cast<double>(a) - static_cast<double>(b)) / ulp;
}

template <typename T>
double largest_distance(std::span<const std::byte> before, std::span<const std::byte> a,
                        std::span<const std::byte> b) {
  double largest = 0;
  for (std::size_t at = 0; at + sizeof(T) <= a.size(); at += sizeof(T)) {
    T x, y, z;
    std::memcpy(&x, before.data() + at, sizeof x);
    std::memcpy(&y, a.data() + at, sizeof y);
    std::memcpy(&z, b.data() + at, sizeof z);
    largest = std::max(largest, distance(x, y, z));
  }
  return largest;
}

}  // namespace

double distance_in_ulps(std::span<const std::byte> before, std::span<const std::byte> a,
                        std::span<const std::byte> b, trace::DType dtype) {
  return dtype == trace::DType::kFloat64 ? largest_distance<double>(before, a, b)
                                         : largest_distance<float>(before, a, b);
}

}  // namespace steptape::session
