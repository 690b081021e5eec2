#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace steptape {

/// How long calls took.
struct LatencyHistogram {
  std::vector<double> bounds_us;      ///< ascending: 1, 2, 5, 10, ... 10,000,000
  std::vector<std::uint64_t> counts;  ///< calls up to each bound; the last entry, beyond all
  double sum_us = 0;

  std::uint64_t count() const noexcept;
  /// The time that this share of the calls did not exceed, to the width of a bin: 0.5 gives the
  /// median. 0 when there were none.
  double quantile_us(double share) const noexcept;
};

/// What became of the calls of a step, those of clones among them.
struct StepMetrics {
  std::string step;
  std::uint64_t ran = 0;
  std::uint64_t refused = 0;  ///< a guard did not hold
  std::uint64_t failed = 0;   ///< an op threw
  LatencyHistogram latency;   ///< of those that ran, guards included
};

/// What a player and its clones did since it was loaded.
struct PlayerMetrics {
  std::vector<StepMetrics> steps;
  std::uint64_t published = 0;
  std::uint64_t weights_loaded = 0;
  std::uint64_t snapshots = 0;
  std::uint64_t failed_snapshots = 0;
  std::string snapshot_problem;  ///< of the newest that failed; empty when a later one did not
};

}  // namespace steptape
