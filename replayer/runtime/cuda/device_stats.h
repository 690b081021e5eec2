#pragma once

#include <string>

#include "replayer/runtime/cuda/capture.h"
#include "replayer/runtime/cuda/plan/device_plan.h"
#include "replayer/runtime/cuda/plan/static_memory.h"
#include "steptape/stats.h"

namespace steptape::replayer::cuda {

/// "op 12 `aten::item` (model.fc1, train.cc:41): why".
std::string words_of(const DevicePlan& plan, trace::Index op, const std::string& why);

/// What a plan on a device is made of. `told` has what only its runs know.
PlanStats stats_of(const DevicePlan& plan, const Captured& captured, const StaticMemory& statics,
                   Gradients gradients, DeviceStats told);

}  // namespace steptape::replayer::cuda
