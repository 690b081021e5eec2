#include "storage/ledger/ledger_reader.h"

#include "diff/ledger/ledger_diff.h"
#include "storage/ledger/ledger_record.h"
#include "storage/ledger/ledger_writer.h"
#include "tests/fuzz/bounded.h"
#include "tests/fuzz/resealed.h"
#include "tests/storage/ledger/ledger_lines.h"

/// A ledger file of any bytes is read or refused within bounded work, and a writer goes on after
/// what is read or leaves the file as it was.
namespace steptape::fuzz {
namespace {

using storage::kLedgerPath;

/// A line takes 64 bytes in the file and in memory, where a vector may double.
constexpr Bound kRead = {1, 8};
constexpr std::uint64_t kNewCall = 77;

void require_can_be_looked_at(const trace::Ledger& ledger) {
  const diff::LedgerDiff diff = diff::compare(ledger, ledger);
  require(diff.verdict().empty() && diff.differing() == 0, "a ledger differs in nothing of itself");
  require(diff.differing_times() == 0, "nor in its times");
  require(diff::summarize(ledger).calls == ledger.lines.size(), "each line counts as a call");
}

/// Whether a writer went on; `before` is what was read.
bool goes_on(storage::MemoryFileSystem& files, const trace::Ledger& before) try {
  {
    storage::LedgerWriter writer(kLedgerPath, storage::kRun, files);
    writer.append(storage::line_of(writer.step("train"), kNewCall));
    writer.close();
    require(!writer.problem() && writer.lost() == 0, "a writer that opened a ledger appends");
  }
  const storage::FoundLedger after =
      storage::read_ledger(kLedgerPath, storage::OnDamage::kRefuse, files);
  require(after.is_closed && after.torn_bytes == 0, "a writer leaves a whole ledger");
  require(storage::is_prefix(before, after.ledger), "a writer goes on after what is there");
  require(after.ledger.lines.size() == before.lines.size() + 1, "a writer appends one line");
  return true;
} catch (const Error& error) {
  require(error.code() != ErrorCode::kIo && error.code() != ErrorCode::kInternal,
          std::string("a writer refuses a file with: ") + error.what());
  return false;
}

void look_at(const std::string& bytes) {
  storage::MemoryFileSystem files;
  files.put(kLedgerPath, bytes);
  const auto read = [&files](storage::OnDamage on_damage) {
    return [&files, on_damage] { return storage::read_ledger(kLedgerPath, on_damage, files); };
  };
  const auto whole = bounded(files, bytes.size(), "read", kRead, read(storage::OnDamage::kRefuse));
  const auto left =
      bounded(files, bytes.size(), "recover", kRead, read(storage::OnDamage::kRecover));
  require(whole.has_value() == (left && left->damage.empty()), "damage is refused, nothing else");
  if (left) require_can_be_looked_at(left->ledger);
  require(!whole || whole->ledger == left->ledger, "recovering gives what reading gives");
  const bool went_on = goes_on(files, whole ? whole->ledger : trace::Ledger());
  require(went_on || files.bytes_at(kLedgerPath) == bytes, "a writer that refuses changes nothing");
  require(went_on || !whole, "a writer goes on after what can be read");
}

}  // namespace
}  // namespace steptape::fuzz

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) {
  using namespace steptape::fuzz;
  const std::string text(reinterpret_cast<const char*>(data), bytes);
  const std::string sealed = resealed_ledger(text);
  look_at(text);
  if (sealed != text) look_at(sealed);
  return 0;
}
