#include "diff/ledger/ledger_summary.h"

#include <map>
#include <utility>

namespace steptape::diff {

LedgerSummary summarize(const trace::Ledger& ledger, std::string_view step) {
  LedgerSummary summary;
  std::map<trace::CallOutcome, std::vector<std::uint32_t>> times;
  std::map<GuardKind, std::uint64_t> verdicts;
  for (const trace::LedgerLine& line : ledger.lines) {
    if (!step.empty() && ledger.steps[line.step] != step) continue;
    ++summary.calls;
    summary.replayed += line.outcome == trace::CallOutcome::kReplayed ? 1 : 0;
    times[line.outcome].push_back(line.microseconds);
    if (line.verdict != GuardKind::kNone) ++verdicts[line.verdict];
  }
  for (auto& [outcome, microseconds] : times) {
    summary.outcomes.push_back({outcome, times_of(std::move(microseconds))});
  }
  for (const auto& [kind, calls] : verdicts) summary.verdicts.push_back({kind, calls});
  return summary;
}

}  // namespace steptape::diff
