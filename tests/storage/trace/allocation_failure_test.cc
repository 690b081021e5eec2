#include <gmock/gmock.h>

#include "tests/storage/ending_memory.h"
#include "tests/storage/figures.h"
#include "tests/storage/sample.h"
#include "tests/storage/trace_file.h"

namespace steptape::storage {
namespace {

using testing::ElementsAre;

/// Traces read and written with memory that ends.
class AllocationFailureTest : public EndingMemoryTest {
 protected:
  AllocationFailureTest() { start_.put(kSamplePath, sample("old", old_).bytes); }

  const trace::Trace old_ = samples().back().trace;
  const trace::Trace new_ = test::train_trace();
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
