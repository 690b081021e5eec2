#pragma once

#include "live/ambient.h"
#include "steptape/verdict.h"

namespace steptape::guards {

/// Guards the thread's and process's switches as one flat compare.
class AmbientGuard {
 public:
  explicit AmbientGuard(const live::Ambient& expected) : expected_(expected) {}
  Verdict check() const;

 private:
  live::Ambient expected_;
};

/// The first fact that differs between what a trace recorded and what holds now, named
/// `ambient.<fact>`.
Verdict compare_facts(const std::vector<trace::Fact>& expected,
                      const std::vector<trace::Fact>& found, const std::string& prefix);

}  // namespace steptape::guards
