#include "replayer/runtime/cpu/lanes/choice.h"

#include <algorithm>

namespace steptape::replayer::cpu {
namespace {

/// Less gain is not worth the processor time that it costs.
bool is_gain(std::uint64_t shared_ns, std::uint64_t in_order_ns) {
  return shared_ns < in_order_ns - in_order_ns / 32;
}

}  // namespace

Way Choice::next() const {
  switch (phase_) {
    case Phase::kTimingJobs:
      return Way::kByJob;
    case Phase::kComparing:
      return Way::kCompared;
    case Phase::kMeasuringShared:
    case Phase::kSharing:
      return Way::kShared;
    case Phase::kMeasuringOrder:
    case Phase::kPausing:
    case Phase::kGivenUp:
      break;
  }
  return Way::kInOrder;
}

void Choice::took(Way way, std::uint64_t ns) {
  if (way != next()) return;
  switch (phase_) {
    case Phase::kMeasuringOrder:
      if (is_measured(ns, in_order_ns_))
        begin(is_compared_ ? Phase::kMeasuringShared : Phase::kTimingJobs);
      break;
    case Phase::kTimingJobs:
      if (++measured_ == kMeasured) begin(Phase::kComparing);
      break;
    case Phase::kComparing:
      is_compared_ = true;
      begin(Phase::kMeasuringShared);
      break;
    case Phase::kMeasuringShared:
      if (is_measured(ns, shared_ns_))
        begin(is_gain(shared_ns_, in_order_ns_) ? Phase::kSharing : Phase::kPausing);
      break;
    case Phase::kSharing:
      look_at(ns);
      break;
    case Phase::kPausing:
      if (--left_ == 0) begin(Phase::kMeasuringOrder);
      break;
    case Phase::kGivenUp:
      break;
  }
}

void Choice::give_up() { phase_ = Phase::kGivenUp; }

void Choice::begin(Phase phase) {
  phase_ = phase;
  measured_ = 0;
  looked_at_ = slow_ = 0;
  if (phase == Phase::kPausing) {
    left_ = pause_;
    pause_ = std::min(pause_ * 2, kLongestPause);
  }
}

bool Choice::is_measured(std::uint64_t ns, std::uint64_t& median) {
  times_.at(measured_++) = ns;
  if (measured_ < kMeasured) return false;
  std::ranges::nth_element(times_, times_.begin() + kMeasured / 2);
  median = times_[kMeasured / 2];
  return true;
}

/// The median of them is too long when half of them are.
void Choice::look_at(std::uint64_t ns) {
  slow_ += is_gain(ns, in_order_ns_) ? 0 : 1;
  if (++looked_at_ < kLookedAt) return;
  if (slow_ > kLookedAt / 2) return begin(Phase::kPausing);
  looked_at_ = slow_ = 0;
}

}  // namespace steptape::replayer::cpu
