#pragma once

#include <gtest/gtest.h>
#include <tbb/global_control.h>

#include <new>

#include "steptape/error.h"
#include "tests/storage/allocations.h"
#include "tests/storage/memory_file_system.h"

namespace steptape::storage {

/// Runs an action over and over, each time with memory that ends one allocation later, for one
/// allocation or for good, until none fails.
class EndingMemoryTest : public testing::Test {
 protected:
  /// What an allocation that failed makes of an action.
  enum class Failure {
    kComesOut,  ///< an exception
    kMayStay,   ///< an exception, or the action knows of it
  };

  /// `after(files)` is called after each run in which an allocation failed.
  template <typename Action, typename After>
  void at_each_allocation(Failure failure, Action&& action, After&& after) {
    for (std::size_t count : {std::size_t{1}, SIZE_MAX}) {
      for (std::size_t first = 0;; ++first, ++cases_) {
        SCOPED_TRACE(testing::Message() << "allocation " << first);
        MemoryFileSystem files(start_);
        if (!fails(failure, files, action, first, count)) break;
        EXPECT_EQ(files.open_files(), 0u);
        after(files);
        if (HasFailure()) return;
      }
    }
  }
  template <typename Action, typename After>
  void at_each_allocation(Action&& action, After&& after) {
    at_each_allocation(Failure::kComesOut, action, after);
  }

  MemoryFileSystem start_;
  std::size_t cases_ = 0;

 private:
  /// Whether an allocation failed.
  template <typename Action>
  static bool fails(Failure failure, MemoryFileSystem& files, Action& action, std::size_t first,
                    std::size_t count) {
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
    if (failure == Failure::kComesOut || !reached) {
      EXPECT_EQ(came_out, reached);
    }
    return reached;
  }

  /// All on one thread, the one whose allocations fail.
  tbb::global_control one_thread_{tbb::global_control::max_allowed_parallelism, 1};
};

}  // namespace steptape::storage
