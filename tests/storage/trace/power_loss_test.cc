#include <gtest/gtest.h>

#include "tests/storage/power_losses.h"
#include "tests/storage/sample.h"
#include "tests/storage/trace_file.h"

namespace steptape::storage {
namespace {

/// A trace over another, or over nothing, written while the power fails.
class PowerLossTest : public testing::Test {
 protected:
  PowerLossTest() { old_file_.put(kSamplePath, sample("old", old_).bytes); }

  /// Writes over what `disk` holds; whether that could be done.
  bool write_over(MemoryFileSystem& disk) const {
    try {
      write(new_, kSamplePath, {}, disk);
      return true;
    } catch (const Error&) {
      return false;
    }
  }
  /// Whether the path holds the new trace, or what `before` holds.
  bool holds_old_or_new(MemoryFileSystem& disk, const MemoryFileSystem& before) const {
    if (!disk.holds(kSamplePath)) return !before.holds(kSamplePath);
    Report report;
    const std::optional<trace::Trace> found = recover(kSamplePath, report, disk);
    return report.whole() && (found == new_ || (before.holds(kSamplePath) && found == old_));
  }
  /// How many of the draws at each call left neither old nor new.
  std::size_t losses(const MemoryFileSystem& before, std::size_t& cases) const {
    return count_losses(
        before, cases, [this](MemoryFileSystem& disk) { return write_over(disk); },
        [&](MemoryFileSystem& disk, bool, std::size_t) { return holds_old_or_new(disk, before); });
  }

  const trace::Trace old_ = test::numbers_trace();
  const trace::Trace new_ = samples().back().trace;
  MemoryFileSystem nothing_;
  MemoryFileSystem old_file_;
};

TEST_F(PowerLossTest, LeavesTheOldTraceOrTheNewOne) {
  std::size_t cases = 0;
  EXPECT_EQ(losses(old_file_, cases), 0u);
  tell("power_losses_over_a_trace", cases);
}

TEST_F(PowerLossTest, LeavesNothingOrTheNewTraceWhereNoneWas) {
  std::size_t cases = 0;
  EXPECT_EQ(losses(nothing_, cases), 0u);
  tell("power_losses_over_nothing", cases);
}

TEST_F(PowerLossTest, WhatIsWrittenIsThereOnceTheWriteReturned) {
  std::mt19937_64 random(2);
  write(new_, kSamplePath, {}, old_file_);
  for (int draw = 0; draw < 20; ++draw) {
    MemoryFileSystem disk(old_file_);
    disk.lose_power(random);
    ASSERT_EQ(read(kSamplePath, disk), new_);
    ASSERT_EQ(disk.names(), std::vector<std::string>{kSamplePath});
  }
}

TEST_F(PowerLossTest, AfterItTheNextWriteGetsThrough) {
  std::mt19937_64 random(3);
  const std::size_t calls =
      calls_of(old_file_, [this](MemoryFileSystem& disk) { write_over(disk); });
  for (std::size_t call = 0; call <= calls; ++call) {
    MemoryFileSystem disk(old_file_);
    disk.fail(disk.calls() + call, EIO, Lasting::kForever);
    write_over(disk);
    disk.lose_power(random);
    write(old_, kSamplePath, {}, disk);
    ASSERT_EQ(read(kSamplePath, disk), old_) << call;
  }
}

/// The tests above would see a sync that is missing.
TEST_F(PowerLossTest, ADiskThatLiesAboutItsSyncsLosesBoth) {
  std::size_t cases = 0;
  old_file_.lie_about_syncs();
  EXPECT_GT(losses(old_file_, cases), 0u);
}

}  // namespace
}  // namespace steptape::storage
