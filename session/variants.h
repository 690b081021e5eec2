#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "guards/entry.h"
#include "session/mismatches.h"
#include "session/room.h"
#include "session/variant.h"

namespace steptape::session {

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
