#pragma once

#include <string>
#include <vector>

#include "trace/model.h"

namespace steptape::tools {

/// The Python statements that switch torch to what `ambient`, Recording::ambient, says of an op's
/// surroundings: threads, determinism, precision and the like, where that is not torch's default.
/// Facts that decide above the dispatcher which ops are called are left out.
std::string python_ambient(const std::vector<trace::Fact>& ambient);

}  // namespace steptape::tools
