#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace steptape::session {

/// Whether a step that has plans may have one more, and which one leaves for it: the one that was
/// used longest ago. A plan costs several eager steps, so one that leaves has to be paid for:
/// by replays, or, since a step may have moved on from all that it did before, by having been
/// unused for long; of these so many leave between two refusals.
class Room {
 public:
  /// So many plans may be there that no call ever came back to: a number that is never the same
  /// twice makes one in each call.
  static constexpr std::size_t kMostUnreturned = 32;
  /// So many are kept whatever memory they take; more, while all take less than this.
  static constexpr std::size_t kMostOfAnySize = 8;
  static constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 30;

  explicit Room(std::size_t most) : most_(most) {}

  struct Held {
    std::uint64_t last_use;  ///< the call, counted
    std::uint64_t bytes;     ///< of memory that lasts from run to run
    bool is_returned;        ///< a call came back to it
  };
  struct Answer {
    bool is_free = true;
    std::vector<std::size_t> leaving = {};  ///< positions of those that make room, if it is free
  };
  /// Whether one may be added to `held`. Where others leave for it, that is paid for. Not free: no
  /// plan should be asked for before a pause is over.
  Answer ask(const std::vector<Held>& held, std::uint64_t now);
  void note_replay() {
    if (credit_ < kMostCredit) ++credit_;
  }

 private:
  /// Replays that are worth recording, planning and trying a step once.
  static constexpr std::uint64_t kWorth = 16;
  static constexpr std::uint64_t kMostCredit = 64 * kWorth;
  static constexpr std::uint64_t kLong = 64;  ///< calls
  static constexpr std::uint32_t kMostUnpaid = 8;

  bool pay(const Held& leaving, std::uint64_t now);

  std::size_t most_;
  std::uint64_t credit_ = 0;
  std::uint32_t unpaid_ = 0;  ///< since the newest refusal
};

}  // namespace steptape::session
