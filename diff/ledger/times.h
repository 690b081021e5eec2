#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trace/model.h"

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

/// How long ops took together, in nanoseconds, in each of several recordings: each number is one
/// that was measured, or 0 for no recordings.
struct OpTimes {
  std::uint64_t recordings = 0;
  std::uint64_t least = 0;
  std::uint64_t lower_quartile = 0;
  std::uint64_t median = 0;
  std::uint64_t upper_quartile = 0;
  std::uint64_t most = 0;
  friend bool operator==(const OpTimes&, const OpTimes&) = default;
};

OpTimes op_times_of(std::vector<std::uint64_t> nanoseconds);

/// So many recordings of each side are compared at all, and so many by the middle half of their
/// times: fewer by all of them.
inline constexpr std::uint64_t kFewestRecordings = 3;
inline constexpr std::uint64_t kFewestForMiddleHalf = 8;

/// How long the same ops took on both sides.
struct OpTimeDifference {
  std::string module;  ///< whose ops they are: its path; empty for ops that no module issued
  OpTimes a, b;

  bool is_comparable() const noexcept;
  /// Whether the middle halves are compared, and not all times.
  bool has_middle_halves() const noexcept;
  /// Whether both sides are further apart than recordings of one side are among themselves: each
  /// median lies outside the other's middle half, or outside all of its times, by more than a
  /// microsecond.
  bool differs() const noexcept;
  /// By how many nanoseconds the medians are apart.
  std::uint64_t distance() const noexcept;
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
