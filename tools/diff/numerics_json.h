#pragma once

#include <nlohmann/json.hpp>

#include "diff/diff.h"

namespace steptape::tools {

/// What the ops of a pair of recordings left: every op and buffer that differs, noise too. Where
/// nothing was compared, `compared` is null and `not_compared` says why.
nlohmann::ordered_json numerics_json(const diff::NumericDifferences& found, const diff::OpStream& a,
                                     const diff::OpStream& b);

/// One op of them.
nlohmann::ordered_json numeric_op_json(const diff::NumericOp& op, const diff::OpStream& a,
                                       const diff::OpStream& b);

}  // namespace steptape::tools
