#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace steptape::replayer::cpu {

/// How a run does work that could be shared out.
enum class Way : std::uint8_t {
  kByJob,     ///< one job after the other, the time of each taken
  kInOrder,   ///< in order, as a whole
  kCompared,  ///< in order and shared out, and the bits compared
  kShared,    ///< shared out
};

/// Decides between work in order and the same work shared out by what both took, on the machine as
/// it is: it is shared out as long as that is faster. Other programs that want the processors later
/// change that, since threads that work together wait for each other.
class Choice {
 public:
  /// What is measured of each way before one is preferred.
  static constexpr std::size_t kMeasured = 9;
  /// Shared-out runs that are looked at together.
  static constexpr std::uint32_t kLookedAt = 64;
  /// Runs in order until the ways are measured again, the first time; twice as many each time.
  static constexpr std::uint64_t kFirstPause = 1024;
  static constexpr std::uint64_t kLongestPause = kFirstPause << 10;

  /// For the next run.
  Way next() const;
  /// It was done so, and took so long.
  void took(Way way, std::uint64_t ns);
  /// There is nothing to gain by sharing out: never again.
  void give_up();

  bool shares() const { return phase_ == Phase::kSharing; }
  /// Medians of what was measured; 0 before.
  std::uint64_t in_order_ns() const { return in_order_ns_; }
  std::uint64_t shared_ns() const { return shared_ns_; }

 private:
  enum class Phase : std::uint8_t {
    kMeasuringOrder,  // first: a team's threads stay awake for a while, and slow the caller's down
    kTimingJobs,
    kComparing,
    kMeasuringShared,
    kSharing,
    kPausing,
    kGivenUp,
  };
  using Times = std::array<std::uint64_t, kMeasured>;

  void begin(Phase phase);
  bool is_measured(std::uint64_t ns, std::uint64_t& median);
  void look_at(std::uint64_t ns);

  Phase phase_ = Phase::kMeasuringOrder;
  Times times_{};
  std::size_t measured_ = 0;
  bool is_compared_ = false;
  std::uint64_t in_order_ns_ = 0;
  std::uint64_t shared_ns_ = 0;
  std::uint32_t looked_at_ = 0;
  std::uint32_t slow_ = 0;
  std::uint64_t pause_ = kFirstPause;
  std::uint64_t left_ = 0;  ///< of the pause
};

}  // namespace steptape::replayer::cpu
