#include <gmock/gmock.h>

#include <cerrno>
#include <cstring>

#include "tests/storage/figures.h"
#include "tests/storage/memory_file_system.h"
#include "tests/storage/sample.h"
#include "tests/storage/trace_file.h"

namespace steptape::storage {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

/// Runs an action over and over, each time with a fault one call later, until none is met.
class IoErrorTest : public testing::Test {
 protected:
  IoErrorTest() { start_.put(kSamplePath, sample("old", old_).bytes); }

  /// `after(files, error)` is called after each run; `error` is none where the action got through.
  template <typename Action, typename After>
  void at_each_call(int number, Lasting lasting, Action&& action, After&& after) {
    for (std::size_t call = 0;; ++call, ++cases_) {
      SCOPED_TRACE(testing::Message() << std::strerror(number) << " at call " << call);
      MemoryFileSystem files(start_);
      files.fail(call, number, lasting);
      std::optional<Error> error;
      try {
        action(files);
      } catch (const Error& thrown) {
        error = thrown;
      }
      EXPECT_EQ(files.open_files(), 0u);
      if (error) {
        EXPECT_EQ(error->code(), ErrorCode::kIo);
        EXPECT_THAT(error->what(), HasSubstr(kSamplePath));
        EXPECT_THAT(error->what(), HasSubstr(std::strerror(number)));
      }
      after(files, error);
      if (files.calls() <= call || HasFailure()) return;
    }
  }

  const trace::Trace old_ = test::numbers_trace();
  const trace::Trace new_ = test::train_trace();
  MemoryFileSystem start_;
  std::size_t cases_ = 0;
};

TEST_F(IoErrorTest, AFailedWriteLeavesTheOldFileAndNoTemporary) {
  // Nothing is lost with these, and the write gets through.
  constexpr std::size_t kClosedAfterReading = 3;
  for (int number : {EIO, ENOSPC}) {
    for (Lasting lasting : {Lasting::kOnce, Lasting::kForever}) {
      std::size_t got_through = 0;
      at_each_call(
          number, lasting, [&](FileSystem& files) { write(new_, kSamplePath, {}, files); },
          [&](MemoryFileSystem files, const std::optional<Error>& error) {
            const bool can_clean_up = lasting == Lasting::kOnce;
            EXPECT_TRUE(!can_clean_up || files.names() == std::vector<std::string>{kSamplePath});
            files.fail(SIZE_MAX, 0, Lasting::kOnce);
            const bool is_new =
                !error || std::string_view(error->what()).starts_with("cannot sync the folder");
            EXPECT_EQ(read(kSamplePath, files), is_new ? new_ : old_);
            got_through += error ? 0 : 1;
          });
      EXPECT_EQ(got_through, lasting == Lasting::kOnce ? kClosedAfterReading + 1 : 2);
    }
  }
  tell("failed_calls_of_writes", cases_);
}

TEST_F(IoErrorTest, AFailedReadSaysSo) {
  for (int number : {EIO, ENOMEM}) {
    for (Lasting lasting : {Lasting::kOnce, Lasting::kForever}) {
      at_each_call(
          number, lasting, [&](FileSystem& files) { EXPECT_EQ(read(kSamplePath, files), old_); },
          [](const MemoryFileSystem&, const std::optional<Error>&) {});
      at_each_call(
          number, lasting,
          [](FileSystem& files) { EXPECT_TRUE(check(kSamplePath, files).whole()); },
          [](const MemoryFileSystem&, const std::optional<Error>&) {});
      at_each_call(
          number, lasting,
          [&](FileSystem& files) {
            Report report;
            EXPECT_EQ(recover(kSamplePath, report, files), old_);
            EXPECT_TRUE(report.whole());
          },
          [](const MemoryFileSystem&, const std::optional<Error>&) {});
    }
  }
  tell("failed_calls_of_reads", cases_);
}

TEST_F(IoErrorTest, AnInterruptedCallIsMadeAgain) {
  at_each_call(
      EINTR, Lasting::kOnce,
      [&](FileSystem& files) {
        write(new_, kSamplePath, {}, files);
        EXPECT_EQ(read(kSamplePath, files), new_);
      },
      [](const MemoryFileSystem& files, const std::optional<Error>& error) {
        EXPECT_FALSE(error);
        EXPECT_THAT(files.names(), ElementsAre(kSamplePath));
      });
  tell("interrupted_calls", cases_);
}

TEST_F(IoErrorTest, WhatIsDoneInPartIsGoneOnWith) {
  for (std::size_t most : {1, 2, 7, 31, 1000}) {
    start_.transfer_at_most(most);
    at_each_call(
        EINTR, Lasting::kOnce, [&](FileSystem& files) { write(new_, kSamplePath, {}, files); },
        [&](MemoryFileSystem files, const std::optional<Error>& error) {
          EXPECT_FALSE(error);
          EXPECT_EQ(read(kSamplePath, files), new_);
        });
  }
  tell("interrupted_calls_in_parts", cases_);
}

TEST_F(IoErrorTest, ADiskThatFillsUpInTheMiddleOfAPieceLeavesTheOldFile) {
  start_.transfer_at_most(7);
  at_each_call(
      ENOSPC, Lasting::kForever, [&](FileSystem& files) { write(new_, kSamplePath, {}, files); },
      [&](MemoryFileSystem files, const std::optional<Error>& error) {
        files.fail(SIZE_MAX, 0, Lasting::kOnce);
        const bool is_new =
            !error || std::string_view(error->what()).starts_with("cannot sync the folder");
        EXPECT_EQ(read(kSamplePath, files), is_new ? new_ : old_);
      });
  tell("disks_that_filled_up", cases_);
}

TEST_F(IoErrorTest, AWriteThatTakesNothingIsNotTriedForEver) {
  start_.transfer_at_most(0);
  EXPECT_THROW(write(new_, kSamplePath, {}, start_), Error);
}

}  // namespace
}  // namespace steptape::storage
