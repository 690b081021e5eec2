#include "tools/dump/open_ledger.h"

#include <fmt/format.h>

#include "tools/cli/output.h"

namespace steptape::tools {
namespace {

std::filesystem::path ledger_of(const std::filesystem::path& path) {
  const std::filesystem::path beside = storage::ledger_beside(path);
  return !storage::is_ledger(path) && std::filesystem::exists(beside) ? beside : path;
}

}  // namespace

storage::FoundLedger open_ledger(const std::filesystem::path& path, storage::OnDamage on_damage) {
  const std::filesystem::path file = ledger_of(path);
  storage::FoundLedger found = storage::read_ledger(file, on_damage);
  if (!found.damage.empty()) complain(fmt::format("{}: {}", file.string(), shown(found.damage)));
  if (found.torn_bytes > 0) {
    complain(fmt::format("{}: the last {} were being written when the machine stopped",
                         file.string(), size_of(found.torn_bytes)));
  }
  return found;
}

}  // namespace steptape::tools
