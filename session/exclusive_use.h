#pragma once

#include <string>
#include <vector>

namespace steptape::session {

/// Holds tracked objects for the time of one step, in the whole process. Two steps over one object
/// take turns: at the same time, a trial in one would undo what the other has just written.
class ExclusiveUse {
 public:
  /// Throws Error (failed_precondition) that names `step` when another thread's step holds one of
  /// them; nothing is held then.
  ExclusiveUse(const std::vector<const void*>& objects, const std::string& step,
               const std::string& names);
  ~ExclusiveUse();
  ExclusiveUse(const ExclusiveUse&) = delete;
  ExclusiveUse& operator=(const ExclusiveUse&) = delete;

 private:
  const std::vector<const void*>& objects_;
};

/// Marks this thread as inside a step.
class InsideStep {
 public:
  InsideStep();
  ~InsideStep();
  InsideStep(const InsideStep&) = delete;
  InsideStep& operator=(const InsideStep&) = delete;
  static bool now() noexcept;
};

}  // namespace steptape::session
