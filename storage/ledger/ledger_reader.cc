#include "storage/ledger/ledger_reader.h"

#include <fmt/format.h>

#include <utility>

#include "steptape/error.h"
#include "storage/ledger/ledger_record.h"
#include "storage/ledger/ledger_scan.h"

namespace steptape::storage {

FoundLedger read_ledger(const std::filesystem::path& path, OnDamage on_damage, FileSystem& files) {
  FoundLedger found;
  const InputFile file(path, files);
  LedgerScan scan = scan_ledger(
      file, [&found](const trace::LedgerLine& line) { found.ledger.lines.push_back(line); });
  if (!scan.damage.empty() && on_damage == OnDamage::kRefuse) {
    throw Error(ErrorCode::kDataLoss, fmt::format("{}: {}", path.string(), scan.damage));
  }
  found.ledger.run = scan.run;
  found.ledger.steps = std::move(scan.steps);
  found.torn_bytes = scan.torn_bytes;
  found.is_closed = scan.is_closed;
  found.damage = std::move(scan.damage);
  return found;
}

std::filesystem::path ledger_beside(const std::filesystem::path& trace) {
  const std::string number = trace.extension().string();
  const bool is_set_aside = number.size() > 1 && trace.stem().has_extension() &&
                            number.find_first_not_of("0123456789", 1) == std::string::npos;
  if (!is_set_aside) return trace.string() + ".ledger";
  return (trace.parent_path() / trace.stem()).string() + ".ledger" + number;
}

bool is_ledger(const std::filesystem::path& path, FileSystem& files) {
  const InputFile file(path, files);
  const std::string start = file.read(0, std::min<std::uint64_t>(file.bytes(), kRecordBytes));
  return has_ledger_magic(bytes_of(start));
}

}  // namespace steptape::storage
