#pragma once

#include <filesystem>
#include <string>

#include "storage/files/file_system.h"
#include "trace/ledger.h"

namespace steptape::storage {

enum class OnDamage { kRefuse, kRecover };

/// A ledger, and what its file says beside it.
struct FoundLedger {
  trace::Ledger ledger;
  std::uint64_t torn_bytes = 0;  ///< of a tail that was being written when the machine stopped
  bool is_closed = false;        ///< its writer closed it: it lives no more, and was not killed
  std::string damage;            ///< after the ledger; empty where there is none
};

/// Reads what a writer has written so far, also while it writes. A damaged file is refused, or
/// gives what comes before the damage. Throws Error: (io); (data_loss) with the place;
/// (unsupported) when a newer Steptape wrote it.
FoundLedger read_ledger(const std::filesystem::path& path, OnDamage on_damage = OnDamage::kRefuse,
                        FileSystem& files = operating_system());

/// The ledger's place beside its trace: "run.tape.ledger"; of one that was set aside, "run.tape.2",
/// it is "run.tape.ledger.2".
std::filesystem::path ledger_beside(const std::filesystem::path& trace);
/// Whether the file begins as ledgers do. Throws Error (io).
bool is_ledger(const std::filesystem::path& path, FileSystem& files = operating_system());

}  // namespace steptape::storage
