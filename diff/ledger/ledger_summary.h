#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "diff/ledger/times.h"
#include "trace/ledger.h"

namespace steptape::diff {

struct OutcomeSummary {
  trace::CallOutcome outcome = trace::CallOutcome::kEager;
  CallTimes times;
};

struct VerdictCount {
  GuardKind kind = GuardKind::kNone;
  std::uint64_t calls = 0;
};

/// What the lines of a ledger come to. Only what occurs is listed, in the order of the enums.
struct LedgerSummary {
  std::uint64_t calls = 0;
  std::uint64_t replayed = 0;
  std::vector<OutcomeSummary> outcomes;
  std::vector<VerdictCount> verdicts;
};

/// With `step`, of the step of this name alone.
LedgerSummary summarize(const trace::Ledger& ledger, std::string_view step = {});

}  // namespace steptape::diff
