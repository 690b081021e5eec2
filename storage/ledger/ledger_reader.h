#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "storage/files/file_system.h"
#include "storage/files/input_file.h"
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

/// What a ledger file holds besides its lines, and how far it can be read.
struct LedgerScan {
  trace::Digest run;
  std::vector<std::string> steps;
  std::uint64_t bytes = 0;       ///< up to the end of the last record that is whole
  bool is_closed = false;        ///< the last of them is the mark of a writer that closed it
  std::uint64_t torn_bytes = 0;  ///< after them, never on the disk
  std::string damage;            ///< what is wrong after them, where it is more than a torn tail
};

/// Reads the file once, in pieces, and hands each line on as it comes. Throws Error: (io);
/// (data_loss) when the header is not that of a ledger; (unsupported) when a newer Steptape wrote
/// it.
LedgerScan scan_ledger(const InputFile& file,
                       const std::function<void(const trace::LedgerLine&)>& take);

}  // namespace steptape::storage
