#pragma once

#include <string>
#include <vector>

#include "live/scoped.h"

namespace steptape::session {

/// Holds tracked objects for the time of one step, in the whole process. Two steps over one object
/// take turns: at the same time, a trial in one would undo what the other has just written.
class ExclusiveUse {
 public:
  /// Throws Error (failed_precondition) that names `step` when another thread's step holds one of
  /// them; nothing is held then. What this thread's own step holds, it may hold again.
  ExclusiveUse(const std::vector<const void*>& objects, const std::string& step,
               const std::string& names);
  ~ExclusiveUse();
  ExclusiveUse(const ExclusiveUse&) = delete;
  ExclusiveUse& operator=(const ExclusiveUse&) = delete;

 private:
  std::vector<const void*> taken_;
};

/// Marks this thread as inside a step. A step called inside another lives its own life while the
/// outer one only runs eagerly; while the outer one is recorded or verified it is a part of that.
class InsideStep {
 public:
  enum class Depth { kOutside, kEager, kWatched };
  explicit InsideStep(Depth now);
  static Depth now() noexcept;

  /// A step of a session with declared values ran inside a watched step of another: a replay of
  /// that would not call its functions.
  static void note_foreign_values() noexcept;
  static bool take_foreign_values() noexcept;

 private:
  live::Scoped<Depth> depth_;
};

}  // namespace steptape::session
