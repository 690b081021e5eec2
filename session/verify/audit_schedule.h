#pragma once

#include <cstdint>
#include <random>

namespace steptape::session {

/// Draws which replays are audited: with probability 1/2, 1/4, ... down to `rate`. At random, since
/// any fixed period aliases with periods of the user's own (an accumulation over 32 steps is never
/// met by audits at 10, 100, 1,000). Its generator is its own: torch's is part of what is replayed.
class AuditSchedule {
 public:
  AuditSchedule(double rate, std::uint64_t seed) : rate_(rate), random_(seed) {}
  bool draw();

 private:
  double rate_;
  double probability_ = 1;
  std::mt19937_64 random_;
};

}  // namespace steptape::session
