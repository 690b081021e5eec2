#pragma once

#include <span>
#include <string>
#include <vector>

#include "steptape/verdict.h"
#include "trace/model.h"

namespace steptape::guards {

/// Guards that no input lies in memory that the step writes, but where it did so while recording.
/// Ops that write assert that they do not overlap what they read by looking at storages, which a
/// plan splits.
class OverlapGuard {
 public:
  /// `bound` is the plan's list of bound buffers, `written` those of all buffers that it writes.
  OverlapGuard(const trace::Recording& recording, const std::vector<trace::BufferId>& bound,
               const std::vector<trace::BufferId>& written);

  /// `memory` has the first byte of each bound buffer.
  Verdict check(std::span<void* const> memory) const;

 private:
  struct Bound {
    std::string path;
    std::size_t bytes;
    std::size_t position;
  };
  std::vector<Bound> inputs_;
  std::vector<Bound> written_;
};

}  // namespace steptape::guards
