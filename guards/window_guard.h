#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "guards/input_guard.h"
#include "steptape/verdict.h"
#include "trace/model.h"
#include "trace/windows.h"

namespace steptape::guards {

/// Finds the memory of a plan's windows (trace::Window), and guards that each is as large as it
/// was.
class WindowGuard {
 public:
  /// `bound` is the plan's list of bound buffers. The recording must outlive the guard.
  WindowGuard(const trace::Recording& recording, const std::vector<trace::BufferId>& bound);

  std::size_t size() const { return windows_.size(); }
  /// `leaves` are what the formulas read, and `memory` has all that is not a window's. With
  /// `remainders` as InputGuard::place, where they are noted from position `first` on.
  Verdict place(std::span<const double> leaves, std::span<void*> memory,
                Remainders* remainders = nullptr, std::size_t first = 0) const;

 private:
  struct Window {
    trace::WindowOfRun of_run;
    const trace::Buffer* buffer;
    std::size_t position, base;  ///< in the list of bound buffers
    bool is_one_element;
  };
  std::vector<Window> windows_;
};

/// What lies on other buffers of those that a plan writes is written, too: the memory that written
/// windows lie in.
std::vector<trace::BufferId> with_windows(const trace::Recording& recording,
                                          std::vector<trace::BufferId> written);

}  // namespace steptape::guards
