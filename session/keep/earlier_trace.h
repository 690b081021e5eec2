#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "trace/model.h"

namespace steptape::session {

/// What an earlier run left at the place of a session's trace. Where it was made in this
/// environment and agrees with what the program does now, a plan needs one probe and not two. No
/// failure reaches the training: what cannot be read is started from as if it were not there, and
/// not written over.
class EarlierTrace {
 public:
  explicit EarlierTrace(const std::string& path);

  /// The recordings of the step whose plans were trusted; they live as long as this.
  std::vector<const trace::Recording*> plans_of(std::string_view step) const;
  /// Takes note of a plan that was made in this run.
  void compare(std::string_view step, const trace::Recording& plan);
  /// Whether this run makes a plan that the earlier one made too, and what is lost when its trace
  /// is written over comes again: no recording that was asked for, and nothing that ops left.
  bool may_be_replaced() const { return is_repeated_ && !is_unique_; }

 private:
  void take(trace::Trace trace);

  std::map<std::string, std::vector<trace::Recording>, std::less<>> plans_;  ///< by step
  bool is_unique_ = false;
  bool is_repeated_ = false;
};

}  // namespace steptape::session
