#include <gtest/gtest.h>

#include <random>
#include <utility>

#include "tests/storage/figures.h"
#include "tests/storage/killed_training.h"
#include "tests/storage/ledger/ledger_lines.h"
#include "tests/storage/trace_file.h"

namespace steptape::storage {
namespace {

/// A training that goes on with the ledger from its last call, flushes it every 64 calls and then
/// says on `out` how far it is, until it is killed.
[[noreturn]] void train(const std::filesystem::path& path, int out) {
  LedgerWriter writer(path, kRun);
  const std::uint16_t step = writer.step("train");
  for (std::uint64_t call = writer.last_call(step) + 1;; ++call) {
    writer.append(line_of(step, call));
    if (call % 64 != 0) continue;
    if (!writer.flush()) ::_exit(1);
    say_flushed(out, call);
  }
}

using LedgerKillTest = TraceFileTest;

TEST_F(LedgerKillTest, AKilledWriterKeepsWhatItFlushedAndTheNextGoesOn) {
  const std::size_t kills = amount("STEPTAPE_KILLS", 200);
  constexpr std::size_t kKillsOfOneFile = 20;
  std::mt19937_64 random(kills);
  std::size_t beyond = 0;
  std::uint64_t calls = 0;
  std::uint64_t all_calls = 0;
  for (std::size_t i = 0; i < kills; ++i) {
    const std::uint64_t flushed = train_and_kill(std::chrono::microseconds(random() % 3000),
                                                 [this](int out) { train(path_, out); });
    const FoundLedger found = read_ledger(path_);
    ASSERT_GE(found.ledger.lines.size(), flushed);
    ASSERT_GT(flushed, calls);
    for (; calls < found.ledger.lines.size(); ++calls) {
      ASSERT_EQ(found.ledger.lines[calls], line_of(0, calls + 1));
    }
    beyond += calls > flushed ? 1 : 0;
    if (i % kKillsOfOneFile != kKillsOfOneFile - 1) continue;
    all_calls += std::exchange(calls, 0);
    std::filesystem::remove(path_);
  }
  tell("ledger_kills", kills);
  tell("ledger_kills_behind_a_flush_that_was_not_told", beyond);
  tell("ledger_calls_of_killed_writers", all_calls + calls);
}

}  // namespace
}  // namespace steptape::storage
