#pragma once

#include <stdexcept>
#include <string>

#include "steptape/refusal.h"

namespace steptape::replayer::cpu {

/// What the plan takes for given turned out otherwise in mid-run: an op returned another shape,
/// dtype or layout, or gave the host another value. Everything is as it was before the run.
struct Changed : std::runtime_error {
  Changed(RefusalCode refusal, const std::string& message)
      : std::runtime_error(message), code(refusal) {}
  RefusalCode code;
};

}  // namespace steptape::replayer::cpu
