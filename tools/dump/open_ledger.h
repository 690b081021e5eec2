#pragma once

#include <filesystem>

#include "storage/ledger/ledger_reader.h"

namespace steptape::tools {

/// Reads a ledger, or the one beside a trace. A torn tail, and with storage::OnDamage::kRecover
/// what is damaged, goes to the standard error. Throws Error as storage::read_ledger does.
storage::FoundLedger open_ledger(const std::filesystem::path& path,
                                 storage::OnDamage on_damage = storage::OnDamage::kRefuse);

}  // namespace steptape::tools
