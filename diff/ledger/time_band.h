#pragma once

#include <cstddef>
#include <cstdint>

namespace steptape::diff {

/// The middle one of several times, and how far the others scatter around it; in one unit.
struct TimeBand {
  std::uint64_t lower = 0;
  std::uint64_t median = 0;
  std::uint64_t upper = 0;
};

/// Whether two sets of times are further apart than those of one set are among themselves: each
/// median lies outside the other's band, by more than `resolution`.
bool lie_apart(const TimeBand& a, const TimeBand& b, std::uint64_t resolution) noexcept;

/// Which of so many sorted values, at least one, has so many percent of them below it.
constexpr std::size_t percentile(std::size_t values, std::size_t percent) noexcept {
  return (values - 1) * percent / 100;
}

}  // namespace steptape::diff
