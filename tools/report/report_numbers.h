#pragma once

#include <nlohmann/json.hpp>

#include "trace/model.h"

namespace steptape::tools {

/// Host numbers of a recording for the page: formulas, what they follow from and where they enter.
/// An index that is none stands as -1.
nlohmann::ordered_json report_numbers(const trace::Recording& recording);

}  // namespace steptape::tools
