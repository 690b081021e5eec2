#pragma once

#include <nlohmann/json.hpp>

#include "trace/diff.h"

namespace steptape::tools {

/// What the ops of a pair of recordings left: every op and buffer that differs, noise too. Where
/// nothing was compared, `compared` is null and `not_compared` says why.
nlohmann::ordered_json numerics_json(const trace::NumericDifferences& found,
                                     const trace::OpStream& a, const trace::OpStream& b);

/// One op of them.
nlohmann::ordered_json numeric_op_json(const trace::NumericOp& op, const trace::OpStream& a,
                                       const trace::OpStream& b);

}  // namespace steptape::tools
