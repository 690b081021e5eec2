#pragma once

#include <functional>
#include <string>
#include <vector>

#include "storage/files/input_file.h"
#include "trace/ledger.h"

namespace steptape::storage {

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
