#include "replayer/player/counters.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>

namespace steptape {

std::uint64_t LatencyHistogram::count() const noexcept {
  return std::accumulate(counts.begin(), counts.end(), std::uint64_t{0});
}

double LatencyHistogram::quantile_us(double share) const noexcept {
  const std::uint64_t all = count();
  if (all == 0 || bounds_us.empty()) return 0;
  const double wanted = std::clamp(share, 0.0, 1.0) * static_cast<double>(all);
  double below = 0;
  for (std::size_t i = 0; i < bounds_us.size(); ++i) {
    const auto here = static_cast<double>(counts[i]);
    if (here > 0 && below + here >= wanted) {
      const double low = i == 0 ? 0 : bounds_us[i - 1];
      return low + (bounds_us[i] - low) * std::max(wanted - below, 0.0) / here;
    }
    below += here;
  }
  return bounds_us.back();
}

namespace replayer {

const std::array<double, StepCounters::kBounds>& StepCounters::bounds() noexcept {
  static constexpr std::array<double, kBounds> kAll = {1,   2,   5,   10,  20,  50,  100, 200,
                                                       500, 1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5,
                                                       2e5, 5e5, 1e6, 2e6, 5e6, 1e7};
  return kAll;
}

void StepCounters::ran(double us) noexcept {
  const auto bin = std::ranges::lower_bound(bounds(), us) - bounds().begin();
  counts_[static_cast<std::size_t>(bin)].fetch_add(1, std::memory_order_relaxed);
  sum_ns_.fetch_add(static_cast<std::uint64_t>(std::llround(us * 1e3)), std::memory_order_relaxed);
}

StepMetrics StepCounters::metrics() const {
  StepMetrics metrics;
  metrics.step = step_;
  metrics.refused = refused_.load(std::memory_order_relaxed);
  metrics.failed = failed_.load(std::memory_order_relaxed);
  metrics.latency.bounds_us.assign(bounds().begin(), bounds().end());
  for (const auto& count : counts_) {
    metrics.latency.counts.push_back(count.load(std::memory_order_relaxed));
  }
  metrics.latency.sum_us = static_cast<double>(sum_ns_.load(std::memory_order_relaxed)) / 1e3;
  metrics.ran = metrics.latency.count();
  return metrics;
}

std::shared_ptr<StepCounters> PlayerCounters::step(const std::string& name) {
  const std::lock_guard lock(mutex_);
  for (const auto& [step, counters] : steps_) {
    if (step == name) return counters;
  }
  return steps_.emplace_back(name, std::make_shared<StepCounters>(name)).second;
}

void PlayerCounters::snapshot_written() {
  const std::lock_guard lock(mutex_);
  ++snapshots_;
  snapshot_problem_.clear();
}

void PlayerCounters::snapshot_failed(const std::string& problem) {
  const std::lock_guard lock(mutex_);
  ++failed_snapshots_;
  snapshot_problem_ = problem;
}

PlayerMetrics PlayerCounters::metrics() const {
  PlayerMetrics metrics;
  metrics.published = published_.load(std::memory_order_relaxed);
  metrics.weights_loaded = weights_loaded_.load(std::memory_order_relaxed);
  const std::lock_guard lock(mutex_);
  for (const auto& [name, counters] : steps_) metrics.steps.push_back(counters->metrics());
  metrics.snapshots = snapshots_;
  metrics.failed_snapshots = failed_snapshots_;
  metrics.snapshot_problem = snapshot_problem_;
  return metrics;
}

}  // namespace replayer

std::string_view name_of(PlayerEvent::Kind kind) noexcept {
  using Kind = PlayerEvent::Kind;
  switch (kind) {
    case Kind::kRan:
      return "ran";
    case Kind::kRefused:
      return "refused";
    case Kind::kFailed:
      return "failed";
    case Kind::kPublished:
      return "published";
    case Kind::kWeightsLoaded:
      return "weights_loaded";
    case Kind::kSnapshot:
      return "snapshot";
    case Kind::kSnapshotFailed:
      return "snapshot_failed";
  }
  return "unknown";
}

std::string PlayerEvent::json() const {
  nlohmann::ordered_json line = {{"event", name_of(kind)}};
  if (!step.empty()) line["step"] = step;
  line["us"] = us;
  if (!text.empty()) line["text"] = text;
  // names come from a file and may be any bytes
  return line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

namespace replayer {

void Events::tell(const PlayerEvent& event) const noexcept {
  if (!tell_) return;
  try {
    tell_(event);
  } catch (...) {  // NOLINT(bugprone-empty-catch): said in LoadOptions::on_event
  }
}

}  // namespace replayer
}  // namespace steptape
