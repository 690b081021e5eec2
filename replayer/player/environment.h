#pragma once

#include <string>
#include <vector>

#include "trace/model.h"

namespace steptape::replayer {

/// Every way in which this process differs from the one whose Trace::environment `recorded` is, one
/// line each: "cpu_capability: recorded AVX2, here AVX512".
std::vector<std::string> environment_differences(const std::vector<trace::Fact>& recorded);

}  // namespace steptape::replayer
