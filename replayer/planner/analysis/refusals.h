#pragma once

#include <string>
#include <vector>

#include "steptape/refusal.h"
#include "trace/model.h"

namespace steptape::replayer {

/// Why this process has no backend for a kind of device; empty: it has one.
using WhyNoBackend = std::string (*)(trace::DeviceKind kind);

/// Why `recording` cannot become a plan in this process: what the recorder saw, operators that are
/// not here, optimizers without a lowering, memory that no backend can give. Empty: it can.
std::vector<Refusal> refusals_of(const trace::Recording& recording, WhyNoBackend why_no_backend);

}  // namespace steptape::replayer
