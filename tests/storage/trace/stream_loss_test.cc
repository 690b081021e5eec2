#include <gmock/gmock.h>
#include <tbb/global_control.h>

#include <cerrno>

#include "steptape/error.h"
#include "storage/trace/reader.h"
#include "tests/storage/allocations.h"
#include "tests/storage/figures.h"
#include "tests/storage/memory_file_system.h"
#include "tests/storage/power_losses.h"
#include "tests/storage/sample.h"
#include "tests/storage/stream.h"

namespace steptape::storage {
namespace {

using testing::HasSubstr;

/// What a training that met a failure knows of its trace.
struct KnownRecordings {
  bool is_open = false;
  std::size_t flushed = 0;  ///< recordings that the last good flush covered
  bool is_finished = false;
  std::uint64_t lost = 0;
  std::vector<std::string> problems;
};

/// A training of a few recordings, flushed every so many, on a disk on which something goes wrong,
/// and which holds what a killed training left.
class StreamLossTest : public testing::Test {
 protected:
  StreamLossTest() {
    StreamWriter writer(kSamplePath, head_of_stream(), {}, nothing_);
    add(writer, left_);
    writer.flush();
  }

  KnownRecordings train(FileSystem& files, std::size_t every) const {
    KnownRecordings known;
    try {
      StreamWriter writer(kSamplePath, head_of_stream(), {}, files);
      known.is_open = true;
      for (std::size_t i = 0; i < added_.size(); ++i) {
        add(writer, added_[i]);
        if ((i + 1) % every == 0 && writer.flush()) known.flushed = i + 1;
      }
      known.is_finished = writer.finish();
      known.lost = writer.lost();
      while (const auto problem = writer.problem()) known.problems.push_back(*problem);
    } catch (const Error& error) {
      known.problems.emplace_back(error.what());
    }
    return known;
  }
  std::size_t calls_of_training(const MemoryFileSystem& disk, std::size_t every) const {
    return calls_of(disk, [this, every](MemoryFileSystem& files) { train(files, every); });
  }
  /// Recordings at the path, or where the trace of this training grows; none where what is there
  /// was never added.
  std::optional<std::size_t> recordings_in(MemoryFileSystem& files) const {
    const bool is_finished = files.holds(kSamplePath);
    if (!is_finished && !files.holds(kPartPath)) return 0;
    Report report;
    const auto found = recover(is_finished ? kSamplePath : kPartPath, report, files);
    if (is_finished && (!report.whole() || found != whole_)) return std::nullopt;
    if (!found) return 0;
    if (!is_part(*found, whole_)) return std::nullopt;
    std::size_t count = 0;
    for (const trace::Step& step : found->steps) count += step.recordings.size();
    return count;
  }
  /// Whether what a killed training left is where it was, or set aside.
  bool has_what_was_left(MemoryFileSystem& files) const {
    const std::string aside = std::string(kPartPath) + ".1";
    Report report;
    return recover(files.holds(aside) ? aside : kPartPath, report, files) == trace_of(left_);
  }
  /// How many of the draws at each call lost what was flushed or left, or gave something else.
  std::size_t losses(const MemoryFileSystem& before, std::size_t every, std::size_t& cases) const {
    const auto is_good = [this, every](MemoryFileSystem& disk, const KnownRecordings& known,
                                       std::size_t draw) {
      const auto found = known.is_open ? recordings_in(disk) : 0;
      if (!found || *found < known.flushed || !has_what_was_left(disk)) return false;
      return draw % 25 != 0 || train(disk, every).is_finished;
    };
    return count_losses(
        before, cases, [this, every](MemoryFileSystem& files) { return train(files, every); },
        is_good);
  }

  const std::vector<Added> left_ = additions(2);
  const std::vector<Added> added_ = additions(7);
  const trace::Trace whole_ = trace_of(added_);
  MemoryFileSystem nothing_;
};

TEST_F(StreamLossTest, WhatWasFlushedOutlivesALossOfPower) {
  std::size_t cases = 0;
  for (const std::size_t every : {1, 3}) EXPECT_EQ(losses(nothing_, every, cases), 0u);
  tell("stream_power_losses", cases);
}

/// The test above would see a sync that is missing.
TEST_F(StreamLossTest, ADiskThatLiesAboutItsSyncsLosesWhatWasFlushed) {
  std::size_t cases = 0;
  nothing_.lie_about_syncs();
  EXPECT_GT(losses(nothing_, 1, cases), 0u);
}

TEST_F(StreamLossTest, AFailedCallIsToldOnceAndRecordingsAreCounted) {
  std::size_t cases = 0;
  for (const int number : {EIO, ENOSPC}) {
    for (const Lasting lasting : {Lasting::kOnce, Lasting::kForever}) {
      for (std::size_t call = 0; call <= calls_of_training(nothing_, 3); ++call, ++cases) {
        MemoryFileSystem files(nothing_);
        files.fail(files.calls() + call, number, lasting);
        const KnownRecordings known = train(files, 3);
        ASSERT_LE(known.problems.size(), 1u) << call;
        ASSERT_EQ(files.open_files(), 0u) << call;
        files.fail(SIZE_MAX, 0, Lasting::kOnce);
        ASSERT_TRUE(has_what_was_left(files)) << call;
        if (!known.is_open) continue;
        const auto found = recordings_in(files);
        ASSERT_TRUE(found) << call;
        ASSERT_GE(*found, known.flushed) << call;
        ASSERT_GE(*found + known.lost, added_.size()) << call;
        if (known.problems.empty()) {
          ASSERT_TRUE(known.is_finished && *found == added_.size()) << call;
        }
        ASSERT_TRUE(train(files, 3).is_finished) << call;
        ASSERT_EQ(recordings_in(files), added_.size()) << call;
      }
    }
  }
  tell("stream_failed_calls", cases);
}

TEST_F(StreamLossTest, AFullDiskEndsTheTraceAndNotTheTraining) {
  std::size_t cases = 0;
  nothing_.transfer_at_most(200);
  for (std::size_t call = 0; call <= calls_of_training(nothing_, 3); ++call) {
    MemoryFileSystem files(nothing_);
    files.fail(files.calls() + call, ENOSPC, Lasting::kOnce);
    const KnownRecordings known = train(files, 3);
    files.fail(SIZE_MAX, 0, Lasting::kOnce);
    if (!known.is_open || known.problems.empty()) continue;
    ++cases;
    ASSERT_THAT(known.problems[0], HasSubstr("No space left on device")) << call;
    const auto found = recordings_in(files);
    ASSERT_TRUE(found) << call;
    if (known.problems[0].starts_with("cannot write")) {
      ASSERT_EQ(*found + known.lost, added_.size()) << call;
    }
  }
  tell("stream_disks_that_filled_up", cases);
}

TEST_F(StreamLossTest, AnInterruptedCallIsMadeAgain) {
  std::size_t cases = 0;
  for (const std::size_t most : {SIZE_MAX, std::size_t{31}, std::size_t{500}}) {
    nothing_.transfer_at_most(most);
    for (std::size_t call = 0; call <= calls_of_training(nothing_, 3); ++call, ++cases) {
      MemoryFileSystem files(nothing_);
      files.fail(files.calls() + call, EINTR, Lasting::kOnce);
      const KnownRecordings known = train(files, 3);
      ASSERT_EQ(known.problems, std::vector<std::string>()) << call;
      ASSERT_EQ(recordings_in(files), added_.size()) << call;
    }
  }
  tell("stream_interrupted_calls", cases);
}

TEST_F(StreamLossTest, AFailedAllocationEndsTheTraceAndNotTheTraining) {
  const tbb::global_control one_thread(tbb::global_control::max_allowed_parallelism, 1);
  std::size_t cases = 0;
  for (const std::size_t count : {std::size_t{1}, SIZE_MAX}) {
    for (std::size_t first = 0;; ++first, ++cases) {
      MemoryFileSystem files(nothing_);
      bool reached = false;
      bool is_finished = false;
      {
        StreamWriter writer(kSamplePath, head_of_stream(), {}, files);
        {
          const AllocationsFail armed(first, count);
          add(writer, added_);
          is_finished = writer.finish();
          reached = armed.reached();
        }
        ASSERT_EQ(writer.problem().has_value(), reached) << first;
        const auto found = recordings_in(files);
        ASSERT_TRUE(found) << first;
        ASSERT_EQ(*found + writer.lost(), added_.size()) << first;
      }
      ASSERT_EQ(is_finished, !reached) << first;
      ASSERT_EQ(files.open_files(), 0u) << first;
      if (!reached) break;
    }
  }
  tell("stream_failed_allocations", cases);
}

TEST_F(StreamLossTest, AnOpeningThatFailsLeavesNothing) {
  std::size_t cases = 0;
  for (std::size_t first = 0;; ++first, ++cases) {
    MemoryFileSystem files;
    bool reached = false;
    try {
      const AllocationsFail armed(first, 1);
      const StreamWriter writer(kSamplePath, trace::Trace(), {}, files);
      reached = armed.reached();
    } catch (const std::bad_alloc&) {
      ASSERT_EQ(files.open_files(), 0u) << first;
      continue;
    }
    ASSERT_FALSE(reached) << first;
    break;
  }
  tell("stream_failed_allocations_of_openings", cases);
}

}  // namespace
}  // namespace steptape::storage
