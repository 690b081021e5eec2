#pragma once

#include <nlohmann/json.hpp>

#include "diff/ledger/ledger_diff.h"
#include "diff/ledger/ledger_summary.h"

namespace steptape::tools {

/// Digests that were not taken are null.
nlohmann::ordered_json line_json(const trace::Ledger& ledger, const trace::LedgerLine& line);
nlohmann::ordered_json summary_json(const diff::LedgerSummary& summary);
/// How one call differs.
nlohmann::ordered_json difference_json(const diff::CallDifference& difference);
nlohmann::ordered_json ledger_diff_json(const diff::LedgerDiff& diff);

}  // namespace steptape::tools
