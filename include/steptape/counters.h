#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "steptape/guard_kind.h"
#include "steptape/refusal.h"

namespace steptape {

/// What all sessions of the process have done since it began, ended ones too. Every call of a step
/// is in exactly one of `recorded`, `trials`, `audits`, `replayed` and `eager`.
struct Counters {
  std::uint64_t steps = 0;
  std::uint64_t recorded = 0;
  std::uint64_t trials = 0;
  std::uint64_t audits = 0;
  std::uint64_t replayed = 0;
  std::uint64_t eager = 0;
  /// Calls that no plan fitted, though there were some, by the guard that failed; none that is 0.
  std::map<GuardKind, std::uint64_t> fallbacks;
  /// Calls that a refusal kept from being replayed, by its code; none that is 0.
  std::map<RefusalCode, std::uint64_t> refusals;
  std::uint64_t plans = 0;           ///< made
  std::uint64_t divergences = 0;     ///< trials and audits that found other bits
  std::uint64_t rebinds = 0;         ///< plans that took up a moved storage
  std::uint64_t log_lines_lost = 0;  ///< that could not be written
};

/// As they are now. Any thread may ask, whatever steps are under way.
Counters counters();

/// In the text format of Prometheus: "steptape_calls_total{outcome=\"replayed\"} 95", ...
std::string prometheus(const Counters& counters);

}  // namespace steptape
