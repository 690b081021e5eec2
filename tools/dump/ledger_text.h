#pragma once

#include <string>

#include "diff/ledger/ledger_diff.h"
#include "diff/ledger/ledger_summary.h"

namespace steptape::tools {

/// The heading of the table that `line_text` makes, and one line of it.
std::string table_heading();
std::string line_text(const trace::Ledger& ledger, const trace::LedgerLine& line);
std::string summary_text(const diff::LedgerSummary& summary);

/// What `steptape diff` prints of ledgers: calls, and, apart from them and without a heading, how
/// long they took.
std::string ledger_diff_text(const diff::LedgerDiff& diff);
std::string time_diff_text(const diff::LedgerDiff& diff);

}  // namespace steptape::tools
