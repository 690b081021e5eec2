#include "steptape/error.h"
#include "tests/storage/ending_memory.h"
#include "tests/storage/figures.h"
#include "tests/storage/ledger/ledger_lines.h"

namespace steptape::storage {
namespace {

/// What a training whose memory ended knows of its ledger. Nothing in it is allocated.
struct KnownLines {
  std::uint64_t appended = 0;  ///< lines, of both steps
  std::uint64_t flushed = 0;   ///< lines that the last good flush covered
  std::uint64_t lost = 0;
  bool has_problem = false;
};

/// Ledgers read and written with memory that ends.
class LedgerAllocationTest : public EndingMemoryTest {
 protected:
  /// Lines of two steps in turn. A training goes on where the name of the second cannot be told,
  /// and tells it again with the next call.
  static void train(FileSystem& files, KnownLines& known) {
    known = {};
    LedgerWriter writer(kLedgerPath, kRun, files);
    const std::uint16_t train = writer.step("train");
    for (std::uint64_t call = 1; call <= 30; ++call) {
      append_one(writer, train, known);
      try {
        append_one(writer, writer.step(kLongName), known);
      } catch (const std::bad_alloc&) {
      }
      if (call % 7 == 0 && writer.flush()) known.flushed = known.appended;
    }
    writer.close();
    known.lost = writer.lost();
    known.has_problem = writer.problem().has_value();
  }
  static void append_one(LedgerWriter& writer, std::uint16_t step, KnownLines& known) {
    writer.append(line_of(step, writer.last_call(step) + 1));
    ++known.appended;
  }
  static std::size_t lines_in(FileSystem& files) {
    return read_ledger(kLedgerPath, OnDamage::kRefuse, files).ledger.lines.size();
  }

  static constexpr std::string_view kLongName =
      "a step whose name is longer than the forty-eight bytes that one record holds";
};

TEST_F(LedgerAllocationTest, AWriterLosesLinesAtMostAndTheNextGoesOn) {
  KnownLines known;
  at_each_allocation(
      Failure::kMayStay, [&known](FileSystem& files) { train(files, known); },
      [&known](MemoryFileSystem& files) {
        const std::size_t found =
            files.holds(kLedgerPath) && !files.bytes_at(kLedgerPath).empty() ? lines_in(files) : 0;
        EXPECT_GE(found, known.flushed);
        EXPECT_GE(found + known.lost, known.appended);
        KnownLines next;
        train(files, next);
        EXPECT_FALSE(next.has_problem);
        EXPECT_EQ(next.lost, 0u);
        EXPECT_EQ(lines_in(files), found + next.appended);
      });
  tell("failed_allocations_of_ledger_writers", cases_);
}

TEST_F(LedgerAllocationTest, AReadGivesNothingAndTheNextOneAll) {
  trace::Ledger whole;
  start_.put(kLedgerPath, sample_ledger(whole));
  const auto read = [&whole](FileSystem& files) {
    EXPECT_EQ(read_ledger(kLedgerPath, OnDamage::kRefuse, files).ledger, whole);
  };
  at_each_allocation(read, read);
  tell("failed_allocations_of_ledger_reads", cases_);
}

TEST_F(LedgerAllocationTest, WhatIsRecoveredIsAllOrNothing) {
  trace::Ledger whole;
  std::string bytes = sample_ledger(whole);
  constexpr std::size_t kDamaged = 700;
  bytes[kDamaged] ^= 1;
  start_.put(kLedgerPath, bytes);
  const FoundLedger left = read_ledger(kLedgerPath, OnDamage::kRecover, start_);
  EXPECT_FALSE(left.damage.empty());
  const auto recover = [&left](FileSystem& files) {
    const FoundLedger found = read_ledger(kLedgerPath, OnDamage::kRecover, files);
    EXPECT_EQ(found.ledger, left.ledger);
    EXPECT_EQ(found.damage, left.damage);
  };
  at_each_allocation(recover, recover);
  tell("failed_allocations_of_ledger_recoveries", cases_);
}

}  // namespace
}  // namespace steptape::storage
