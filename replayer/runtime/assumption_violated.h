#pragma once

#include <stdexcept>
#include <string>
#include <utility>

#include "steptape/refusal.h"
#include "steptape/verdict.h"

namespace steptape::replayer {

/// What the plan takes for given turned out otherwise in mid-run: an op returned another shape,
/// dtype or layout, or gave the host another value. Everything is as it was before the run.
struct AssumptionViolated : std::runtime_error {
  AssumptionViolated(RefusalCode refusal, Verdict what)
      : std::runtime_error(what.text()), code(refusal), verdict(std::move(what)) {}
  RefusalCode code;
  Verdict verdict;
};

/// The run would have been done in a way in which none was compared with the eager step
/// (ExecutorOptions::is_compared). Everything is as it was before it.
struct Uncompared : std::runtime_error {
  using std::runtime_error::runtime_error;
};

}  // namespace steptape::replayer
