#pragma once

#include <cstdint>
#include <vector>

namespace steptape::diff {

/// How long calls took, in microseconds: each number is one that was measured, or 0 for no calls.
struct CallTimes {
  std::uint64_t calls = 0;
  std::uint32_t lower_quartile = 0;
  std::uint32_t median = 0;
  std::uint32_t upper_quartile = 0;
  std::uint32_t percentile_95 = 0;
  friend bool operator==(const CallTimes&, const CallTimes&) = default;
};

CallTimes times_of(std::vector<std::uint32_t> microseconds);

inline constexpr std::uint64_t kFewestCalls = 8;

/// Whether both sets are large enough to be compared: of at least kFewestCalls calls.
bool are_comparable(const CallTimes& a, const CallTimes& b) noexcept;
/// Whether two sets of calls that are comparable are further apart than calls of one set are among
/// themselves: each median lies outside the middle half of the other's times, by more than the
/// microsecond that they are measured to.
bool differ(const CallTimes& a, const CallTimes& b) noexcept;

}  // namespace steptape::diff
