#include <gmock/gmock.h>
#include <tbb/global_control.h>

#include "tests/storage/allocations.h"
#include "tests/storage/figures.h"
#include "tests/storage/memory_file_system.h"
#include "tests/storage/sample.h"
#include "tests/storage/trace_file.h"

namespace steptape::storage {
namespace {

using testing::ElementsAre;

/// Runs an action over and over, each time with memory that ends one allocation later, for one
/// allocation or for good, until none fails.
class AllocationFailureTest : public testing::Test {
 protected:
  AllocationFailureTest() { start_.put(kSamplePath, sample("old", old_).bytes); }

  /// `after(files)` is called behind each run whose exception came out.
  template <typename Action, typename After>
  void at_each_allocation(Action&& action, After&& after) {
    for (std::size_t count : {std::size_t{1}, SIZE_MAX}) {
      for (std::size_t first = 0;; ++first, ++cases_) {
        SCOPED_TRACE(testing::Message() << "allocation " << first);
        MemoryFileSystem files(start_);
        if (!fails(files, action, first, count)) break;
        EXPECT_EQ(files.open_files(), 0u);
        after(files);
        if (HasFailure()) return;
      }
    }
  }

  const trace::Trace old_ = samples().back().trace;
  const trace::Trace new_ = test::train_trace();
  MemoryFileSystem start_;
  std::size_t cases_ = 0;

 private:
  /// Whether an allocation failed; then an exception must have come out.
  template <typename Action>
  static bool fails(MemoryFileSystem& files, Action& action, std::size_t first, std::size_t count) {
    bool came_out = false;
    bool reached = false;
    {
      const AllocationsFail armed(first, count);
      try {
        action(files);
      } catch (const std::bad_alloc&) {
        came_out = true;
      } catch (const Error&) {
        came_out = true;
      }
      reached = armed.reached();
    }
    EXPECT_EQ(came_out, reached);
    return reached;
  }

  /// All on one thread, the one whose allocations fail.
  tbb::global_control one_thread_{tbb::global_control::max_allowed_parallelism, 1};
};

TEST_F(AllocationFailureTest, AWriteLeavesTheOldFileAndNoTemporary) {
  at_each_allocation([&](FileSystem& files) { write(new_, kSamplePath, {}, files); },
                     [&](MemoryFileSystem& files) {
                       EXPECT_THAT(files.names(), ElementsAre(kSamplePath));
                       EXPECT_EQ(read(kSamplePath, files), old_);
                     });
  tell("failed_allocations_of_writes", cases_);
}

TEST_F(AllocationFailureTest, AReadGivesNothingAndTheNextOneAll) {
  at_each_allocation([&](FileSystem& files) { EXPECT_EQ(read(kSamplePath, files), old_); },
                     [&](MemoryFileSystem& files) { EXPECT_EQ(read(kSamplePath, files), old_); });
  tell("failed_allocations_of_reads", cases_);
}

TEST_F(AllocationFailureTest, WhatIsRecoveredIsAllOrNothing) {
  at_each_allocation(
      [&](FileSystem& files) {
        Report report;
        EXPECT_EQ(recover(kSamplePath, report, files), old_);
        EXPECT_TRUE(report.whole());
      },
      [](MemoryFileSystem&) {});
  tell("failed_allocations_of_recoveries", cases_);
}

}  // namespace
}  // namespace steptape::storage
