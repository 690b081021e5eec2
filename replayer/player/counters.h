#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "steptape/metrics.h"
#include "steptape/player.h"

namespace steptape::replayer {

/// Counts what became of a step's calls. Threads may count at the same time.
class StepCounters {
 public:
  explicit StepCounters(std::string step) : step_(std::move(step)) {}

  void ran(double us) noexcept;
  void refused() noexcept { refused_.fetch_add(1, std::memory_order_relaxed); }
  void failed() noexcept { failed_.fetch_add(1, std::memory_order_relaxed); }
  /// Each count by itself is right, and none is of later than this call's end.
  StepMetrics metrics() const;

 private:
  static constexpr std::size_t kBounds = 22;  ///< 1, 2, 5 us to 10 s
  static const std::array<double, kBounds>& bounds() noexcept;

  std::string step_;
  std::atomic<std::uint64_t> refused_ = 0, failed_ = 0;
  std::array<std::atomic<std::uint64_t>, kBounds + 1> counts_ = {};
  std::atomic<std::uint64_t> sum_ns_ = 0;
};

/// Counts what became of a player and its clones. Threads may count at the same time.
class PlayerCounters {
 public:
  /// By the step's name: the same object for the same name.
  std::shared_ptr<StepCounters> step(const std::string& name);
  void published() noexcept { published_.fetch_add(1, std::memory_order_relaxed); }
  void weights_loaded() noexcept { weights_loaded_.fetch_add(1, std::memory_order_relaxed); }
  void snapshot_written();
  void snapshot_failed(const std::string& problem);
  PlayerMetrics metrics() const;

 private:
  mutable std::mutex mutex_;  ///< of the steps' list and the problem
  std::vector<std::pair<std::string, std::shared_ptr<StepCounters>>> steps_;
  std::atomic<std::uint64_t> published_ = 0, weights_loaded_ = 0;
  std::uint64_t snapshots_ = 0, failed_snapshots_ = 0;
  std::string snapshot_problem_;
};

/// Tells the user of events; what the user throws is dropped.
class Events {
 public:
  explicit Events(std::function<void(const PlayerEvent&)> tell) : tell_(std::move(tell)) {}
  void tell(const PlayerEvent& event) const noexcept;

 private:
  std::function<void(const PlayerEvent&)> tell_;
};

}  // namespace steptape::replayer
