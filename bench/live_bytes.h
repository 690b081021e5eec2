#pragma once

#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace steptape::bench {

/// Counts the bytes that LibTorch's CPU allocator hands out and takes back in this thread while it
/// lives. Memory from before is not counted, so make it before the first tensor.
class LiveBytes {
 public:
  /// Starts a new peak from what is alive now.
  void restart() { counter_->peak = counter_->live; }
  std::int64_t peak() const { return counter_->peak; }

 private:
  struct Counter : c10::MemoryReportingInfoBase {
    void reportMemoryUsage(void* /*pointer*/, std::int64_t size, std::size_t /*allocated*/,
                           std::size_t /*reserved*/, c10::Device /*device*/) override {
      live += size;
      peak = std::max(peak, live);
    }
    bool memoryProfilingEnabled() const override { return true; }

    std::int64_t live = 0;
    std::int64_t peak = 0;
  };

  std::shared_ptr<Counter> counter_ = std::make_shared<Counter>();
  c10::DebugInfoGuard guard_{c10::DebugInfoKind::PROFILER_STATE, counter_};
};

}  // namespace steptape::bench
