#pragma once

#include <nlohmann/json.hpp>

#include "diff/numerics/numeric_differences.h"
#include "diff/op_stream.h"

namespace steptape::tools {

/// In which ops two recordings left other bits, for the page: how many, and the first of them with
/// the reason of each. Origins come first, then what is not known, receivers and noise.
nlohmann::ordered_json report_numerics(const diff::NumericDifferences& found,
                                       const diff::OpStream& a, const diff::OpStream& b);

}  // namespace steptape::tools
