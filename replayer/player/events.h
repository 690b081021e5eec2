#pragma once

#include <chrono>
#include <functional>

#include "steptape/player.h"

namespace steptape::replayer {

/// Tells the user of events; what the user throws is dropped.
class Events {
 public:
  explicit Events(std::function<void(const PlayerEvent&)> tell) : tell_(std::move(tell)) {}
  void tell(const PlayerEvent& event) const noexcept;

 private:
  std::function<void(const PlayerEvent&)> tell_;
};

/// Time since it was made.
class Stopwatch {
 public:
  double us() const {
    return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start_)
        .count();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace steptape::replayer
