#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "trace/model.h"

namespace steptape::diff {

/// Several times: each number is one that was measured, or 0 where there is none.
struct Times {
  std::uint64_t count = 0;
  std::uint64_t least = 0;
  std::uint64_t lower_quartile = 0;
  std::uint64_t median = 0;
  std::uint64_t upper_quartile = 0;
  std::uint64_t percentile_95 = 0;
  std::uint64_t most = 0;
  friend bool operator==(const Times&, const Times&) = default;
};

Times times_of(std::vector<std::uint64_t> times);

/// So many times of each side are compared by their middle half.
inline constexpr std::uint64_t kFewestForMiddleHalf = 8;

/// How long the same took on both sides.
struct TimeDifference {
  Times a, b;
  /// So many times of each side are compared at all: fewer than kFewestForMiddleHalf by all of
  /// them.
  std::uint64_t fewest = kFewestForMiddleHalf;
  std::uint64_t microsecond = 1;  ///< in the unit of the times

  bool is_comparable() const noexcept;
  /// Whether the middle halves are compared, and not all times.
  bool has_middle_halves() const noexcept;
  /// Whether both sides are further apart than times of one side are among themselves: each median
  /// lies outside the other's middle half, or outside all of its times, by more than a microsecond.
  bool differs() const noexcept;
  /// By how much the medians are apart.
  std::uint64_t distance() const noexcept;
};

/// How long the same ops took together, in nanoseconds, in each of several recordings.
struct OpTimeDifference : TimeDifference {
  OpTimeDifference() : OpTimeDifference("", {}, {}) {}
  OpTimeDifference(std::string of, const Times& times_a, const Times& times_b)
      : TimeDifference{times_a, times_b, /*fewest=*/3, /*microsecond=*/1000},
        module(std::move(of)) {}

  std::string module;  ///< whose ops they are: its path; empty for ops that no module issued
};

/// How long ops of the steps of one name took. Recordings without times, and warm-ups, are left
/// out; a module has a time in each recording in which it issued an op, of all its calls.
struct OpTimeDifferences {
  OpTimeDifference step;  ///< of all ops, whatever module issued them
  /// Of modules that both sides have. Those that differ come first, then by their distance.
  std::vector<OpTimeDifference> modules;

  /// Of the step and its modules, those that differ.
  std::uint64_t differing() const noexcept;
};

/// Whether a recording of the step that is no warm-up says how long its ops took.
bool has_op_times(const trace::Step& step) noexcept;

/// None where a side has no times.
std::optional<OpTimeDifferences> op_time_differences(const trace::Step& a, const trace::Step& b);

}  // namespace steptape::diff
