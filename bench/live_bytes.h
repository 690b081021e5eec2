#pragma once

#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

namespace steptape::bench {

/// Counts the bytes that LibTorch's CPU allocator hands out and takes back in this thread.
class LiveBytes : public c10::MemoryReportingInfoBase {
 public:
  void reportMemoryUsage(void* /*pointer*/, std::int64_t size, std::size_t /*allocated*/,
                         std::size_t /*reserved*/, c10::Device /*device*/) override {
    live_ += size;
    peak_ = std::max(peak_, live_);
  }
  bool memoryProfilingEnabled() const override { return true; }

  /// How far live tensor bytes rose above where they stood while `run` ran.
  static std::int64_t peak_of(const std::function<void()>& run) {
    const auto counter = std::make_shared<LiveBytes>();
    const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, counter);
    run();
    return counter->peak_;
  }

 private:
  std::int64_t live_ = 0;
  std::int64_t peak_ = 0;
};

}  // namespace steptape::bench
