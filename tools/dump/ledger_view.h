#pragma once

#include <filesystem>
#include <string>

#include "diff/ledger/ledger_diff.h"
#include "storage/ledger/ledger_reader.h"
#include "tools/cli/json.h"

namespace steptape::tools {

/// Reads a ledger, or the one beside a trace. A torn tail, and with storage::OnDamage::kRecover
/// what is damaged, goes to the standard error. Throws Error as storage::read_ledger does.
storage::FoundLedger open_ledger(const std::filesystem::path& path,
                                 storage::OnDamage on_damage = storage::OnDamage::kRefuse);

/// Digests that were not taken are null.
Json line_json(const trace::Ledger& ledger, const trace::LedgerLine& line);
Json summary_json(const diff::LedgerSummary& summary);
/// How one call differs.
Json difference_json(const diff::CallDifference& difference);
Json ledger_diff_json(const diff::LedgerDiff& diff);

/// The heading of the table that `line_text` makes, and one line of it.
std::string table_heading();
std::string line_text(const trace::Ledger& ledger, const trace::LedgerLine& line);
std::string summary_text(const diff::LedgerSummary& summary);

/// What `steptape diff` prints of ledgers: calls, and, apart from them and without a heading, how
/// long they took.
std::string ledger_diff_text(const diff::LedgerDiff& diff);
std::string time_diff_text(const diff::LedgerDiff& diff);

}  // namespace steptape::tools
