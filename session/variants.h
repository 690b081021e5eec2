#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "guards/entry.h"
#include "session/variant.h"
#include "steptape/stats.h"
#include "steptape/verdict.h"

namespace steptape::session {

/// Why the variants that one call asked did not fit it: a guard failed, or a run was undone. Empty,
/// at no cost, when the first one that is asked fits.
class Mismatches {
 public:
  /// A call begins: the one of this number.
  void begin(std::uint64_t call);
  /// What is said of a variant twice in a call counts as it was said last.
  void add(const Variant& variant, Verdict verdict);
  /// In the order in which they were found out.
  const std::vector<VariantVerdict>& all() const { return all_; }

 private:
  std::uint64_t call_ = 0;
  std::vector<VariantVerdict> all_;
};

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

/// The variants of a step, in the order in which their guards are asked, and which of them a call
/// may try. Calls are counted: `now` is how many calls of the step there were.
class Variants {
 public:
  /// At most so many are kept.
  explicit Variants(std::size_t most) : room_(most) {}

  /// They live on in a call that drops them.
  using Tried = std::vector<std::shared_ptr<const Variant>>;

  /// One whose guards hold and that was not `tried` in this call; null when there is none. Adds why
  /// the others do not fit to `mismatches`.
  std::shared_ptr<Variant> find(const std::vector<live::Argument>& arguments,
                                const guards::Declared& declared, const Tried& tried,
                                std::uint64_t now, guards::Entry& entry, Mismatches& mismatches);

  /// Another variant did what these were undone for: those that take turns by what the step reads
  /// are undone for each other, and that is well.
  void reset_penalties(const Tried& tried);
  /// The eager step ran in the place of a variant whose trial was undone, and was not recorded: the
  /// next calls may be.
  static void back_off(Variant& variant, const replayer::AssumptionViolated& changed,
                       std::uint64_t now);
  /// Whether a variant that stepped aside does what was recorded since; then it is tried again.
  bool resumes(const trace::Recording& recording, std::uint64_t now);
  /// A run was undone: the program took another way. The plan that was right most often comes first
  /// from here on. Whether it happened too often.
  bool note_change(Variant& variant);
  /// Whether one more may be added; those that leave for it are dropped then and go into `left`.
  bool make_room(std::uint64_t now, std::vector<std::shared_ptr<Variant>>& left);
  void note_replay() { room_.note_replay(); }

  void add(std::shared_ptr<Variant> variant) { variants_.push_back(std::move(variant)); }
  void drop(const Variant& variant);
  void clear() { variants_.clear(); }

  std::size_t size() const { return variants_.size(); }
  auto begin() const { return variants_.begin(); }
  auto end() const { return variants_.end(); }

 private:
  std::vector<std::shared_ptr<Variant>> variants_;
  Room room_;
};

}  // namespace steptape::session
