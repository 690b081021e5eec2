#include <gmock/gmock.h>

#include <cerrno>

#include "steptape/error.h"
#include "tests/storage/figures.h"
#include "tests/storage/ledger/ledger_lines.h"
#include "tests/storage/power_losses.h"

namespace steptape::storage {
namespace {

using testing::HasSubstr;

constexpr std::uint64_t kCallsToAppend = 40;

/// What a training that met a failure knows of its ledger.
struct KnownCalls {
  std::uint64_t appended = 0;
  std::uint64_t flushed = 0;  ///< calls that the last good flush covered
  std::uint64_t lost = 0;
  std::vector<std::string> problems;
};

/// A training of 40 calls, flushed every few, on a disk on which something goes wrong.
class LedgerLossTest : public testing::Test {
 protected:
  /// Goes on from the last call in the file.
  static KnownCalls train(MemoryFileSystem& files, std::uint64_t every) {
    KnownCalls known;
    try {
      LedgerWriter writer(kLedgerPath, kRun, files);
      const std::uint16_t step = writer.step("train");
      const std::uint64_t first = writer.last_call(step) + 1;
      for (std::uint64_t call = first; call < first + kCallsToAppend; ++call) {
        writer.append(line_of(step, call));
        known.appended = call;
        if (call % every == 0 && writer.flush()) known.flushed = call;
      }
      writer.close();
      known.lost = writer.lost();
      while (const auto problem = writer.problem()) known.problems.push_back(*problem);
    } catch (const Error& error) {
      known.problems.emplace_back(error.what());
    }
    return known;
  }
  static std::size_t calls_of_training(const MemoryFileSystem& disk, std::uint64_t every) {
    return calls_of(disk, [every](MemoryFileSystem& files) { train(files, every); });
  }
  /// The number of calls in the file, in order from the first; none where it is damaged.
  static std::optional<std::uint64_t> calls_in(MemoryFileSystem& files) {
    try {
      const FoundLedger found = read_ledger(kLedgerPath, OnDamage::kRefuse, files);
      for (std::uint64_t i = 0; i < found.ledger.lines.size(); ++i) {
        if (found.ledger.lines[i] != line_of(0, i + 1)) return std::nullopt;
      }
      return found.ledger.lines.size();
    } catch (const Error& error) {
      const bool is_begun = files.holds(kLedgerPath) && files.bytes_at(kLedgerPath).size() >= 64;
      return is_begun ? std::nullopt : std::optional<std::uint64_t>(0);
    }
  }
  /// How many of the draws at each call lost what was flushed, or left a damaged file.
  static std::size_t losses(const MemoryFileSystem& before, std::uint64_t every,
                            std::size_t& cases) {
    const auto is_good = [every](MemoryFileSystem& disk, const KnownCalls& known,
                                 std::size_t draw) {
      const auto found = calls_in(disk);
      if (!found || *found < known.flushed) return false;
      if (draw % 10 != 0) return true;
      const KnownCalls next = train(disk, every);
      return next.problems.empty() && calls_in(disk) == next.appended;
    };
    return count_losses(
        before, cases, [every](MemoryFileSystem& files) { return train(files, every); }, is_good);
  }
  MemoryFileSystem nothing_;
};

TEST_F(LedgerLossTest, WhatWasFlushedOutlivesALossOfPower) {
  std::size_t cases = 0;
  for (const std::uint64_t every : {1, 7, 40}) EXPECT_EQ(losses(nothing_, every, cases), 0u);
  tell("ledger_power_losses", cases);
}

TEST_F(LedgerLossTest, SoDoesWhatAnEarlierWriterFlushed) {
  std::size_t cases = 0;
  train(nothing_, 7);
  EXPECT_EQ(losses(nothing_, 7, cases), 0u);
  tell("ledger_power_losses_behind_another", cases);
}

/// The tests above would see a sync that is missing.
TEST_F(LedgerLossTest, ADiskThatLiesAboutItsSyncsLosesWhatWasFlushed) {
  std::size_t cases = 0;
  nothing_.lie_about_syncs();
  EXPECT_GT(losses(nothing_, 7, cases), 0u);
}

TEST_F(LedgerLossTest, AFailedCallIsToldOnceAndLinesAreCounted) {
  std::size_t cases = 0;
  for (const int number : {EIO, ENOSPC}) {
    for (const Lasting lasting : {Lasting::kOnce, Lasting::kForever}) {
      for (std::size_t call = 0; call <= calls_of_training(nothing_, 7); ++call, ++cases) {
        MemoryFileSystem files(nothing_);
        files.fail(call, number, lasting);
        const KnownCalls known = train(files, 7);
        ASSERT_LE(known.problems.size(), 1u) << call;
        ASSERT_EQ(files.open_files(), 0u) << call;
        files.fail(SIZE_MAX, 0, Lasting::kOnce);
        const auto found = calls_in(files);
        ASSERT_TRUE(found) << call;
        ASSERT_GE(*found, known.flushed) << call;
        ASSERT_GE(*found + known.lost, known.appended) << call;
        if (known.problems.empty()) {
          ASSERT_EQ(*found, kCallsToAppend) << call;
        }
        const KnownCalls next = train(files, 7);
        ASSERT_EQ(next.problems, std::vector<std::string>()) << call;
        ASSERT_EQ(calls_in(files), next.appended) << call;
      }
    }
  }
  tell("ledger_failed_calls", cases);
}

TEST_F(LedgerLossTest, AFullDiskEndsTheLedgerAndNotTheTraining) {
  std::size_t cases = 0;
  nothing_.transfer_at_most(60);
  for (std::size_t call = 6; call <= calls_of_training(nothing_, 7); ++call, ++cases) {
    MemoryFileSystem files(nothing_);
    files.fail(call, ENOSPC, Lasting::kOnce);
    const KnownCalls known = train(files, 7);
    files.fail(SIZE_MAX, 0, Lasting::kOnce);
    const auto found = calls_in(files);
    ASSERT_TRUE(found) << call;
    ASSERT_EQ(files.bytes_at(kLedgerPath).size() % 64, 0u) << call;
    if (known.appended == 0 || known.problems.empty()) continue;
    ASSERT_THAT(known.problems[0], HasSubstr("No space left on device")) << call;
    if (known.problems[0].starts_with("cannot write")) {
      ASSERT_EQ(*found + known.lost, known.appended) << call;
    }
  }
  tell("ledger_disks_that_filled_up", cases);
}

TEST_F(LedgerLossTest, AnInterruptedCallIsMadeAgain) {
  std::size_t cases = 0;
  for (const std::size_t most : {SIZE_MAX, std::size_t{7}, std::size_t{31}}) {
    nothing_.transfer_at_most(most);
    for (std::size_t call = 0; call <= calls_of_training(nothing_, 7); ++call, ++cases) {
      MemoryFileSystem files(nothing_);
      files.fail(call, EINTR, Lasting::kOnce);
      const KnownCalls known = train(files, 7);
      ASSERT_EQ(known.problems, std::vector<std::string>()) << call;
      ASSERT_EQ(calls_in(files), kCallsToAppend) << call;
    }
  }
  tell("ledger_interrupted_calls", cases);
}

TEST_F(LedgerLossTest, AFileSystemWithoutLocksHasALedgerAllTheSame) {
  constexpr std::size_t kLock = 2;  // after the look for a link, and opening
  nothing_.fail(kLock, EOPNOTSUPP, Lasting::kOnce);
  EXPECT_EQ(train(nothing_, 7).problems, std::vector<std::string>());
  EXPECT_EQ(calls_in(nothing_), kCallsToAppend);
}

}  // namespace
}  // namespace steptape::storage
