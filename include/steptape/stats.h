#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "steptape/refusal.h"
#include "steptape/verdict.h"

namespace steptape {

/// How often a refusal was met.
struct CountedRefusal {
  Refusal refusal;
  std::uint64_t times = 0;
};

/// What a plan is made of; of one variant.
struct PlanStats {
  std::uint64_t ops = 0;              ///< recorded
  std::uint64_t calls = 0;            ///< made by a replay
  std::uint64_t arena_bytes = 0;      ///< planned memory of all temporaries
  std::uint64_t temporary_bytes = 0;  ///< what they would take without sharing
  std::uint64_t max_live_bytes = 0;   ///< lower bound of the arena
  std::uint64_t adopted = 0;          ///< calls whose results stay in memory that the op allocates
  double plan_us = 0;                 ///< time it took to make the plan
  std::uint64_t replays = 0;
  /// Numerics::kFused: the largest difference that a trial or audit of this plan found, in units in
  /// the last place; below 0 for a plan of the recorded ops.
  double largest_ulps = -1;
};

/// Counts by outcome; every call of a step is in exactly one of `recorded`, `trials`, `audits`,
/// `replayed` and `eager`.
struct Stats {
  std::uint64_t steps = 0;
  std::uint64_t recorded = 0;  ///< warm-ups and probes
  std::uint64_t trials = 0;
  std::uint64_t audits = 0;
  std::uint64_t replayed = 0;
  std::uint64_t eager = 0;
  std::vector<PlanStats> variants;
  std::vector<CountedRefusal> refusals;
  /// Why the newest call that did not replay found no plan; holds when it did or there was none to
  /// check.
  Verdict last_verdict;
  std::string trace_problem;  ///< why the trace could not be written, or empty
};

}  // namespace steptape
