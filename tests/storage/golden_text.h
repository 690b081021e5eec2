#pragma once

#include <filesystem>
#include <sstream>
#include <string>

#include "storage/ledger/ledger_reader.h"
#include "storage/ledger/ledger_record.h"

namespace steptape::storage {

inline const std::filesystem::path kGolden = STEPTAPE_SOURCE_DIR "/tests/storage/golden";

inline std::filesystem::path golden_of_traces(std::uint32_t major, std::uint32_t minor) {
  return kGolden / ("v" + std::to_string(major) + "." + std::to_string(minor));
}
inline std::filesystem::path golden_of_ledgers(std::uint32_t version) {
  return kGolden / ("ledger_v" + std::to_string(version));
}

/// Everything that a ledger file holds, one line a call.
inline std::string text_of_ledger(const FoundLedger& found) {
  std::ostringstream out;
  out << "run " << text_of(found.ledger.run) << "\nclosed " << found.is_closed << "\ntorn "
      << found.torn_bytes << "\n";
  for (const std::string& step : found.ledger.steps) out << "step \"" << step << "\"\n";
  for (const trace::LedgerLine& line : found.ledger.lines) {
    out << "line step " << line.step << " call " << line.call << " outcome "
        << static_cast<int>(line.outcome) << " verdict " << static_cast<int>(line.verdict)
        << " variant " << line.variant << " inputs " << line.inputs << " results " << line.results
        << " gradients " << line.gradients << " parameters " << line.parameters << " generators "
        << line.generators << " microseconds " << line.microseconds << "\n";
  }
  return out.str();
}

}  // namespace steptape::storage
