#pragma once

#include <string>

#include "diff/diff.h"
#include "tools/diff/comparison.h"
#include "tools/diff/diff_policy.h"

namespace steptape::tools {

/// "differ: ledger (train: call 57: results), numerics (train: call 57: origin op 31 aten::addmm in
/// model.fc1), structure (3 inserted, 1 changed)", in the order of the sections; "equal" where
/// nothing that is told differs; "equal but for place (1)" where nothing counts that does.
std::string verdict_of(const Comparison& found, const DiffPolicy& policy);

/// "22 inserted, 3 changed": edits by kind, those that occur.
std::string words_of_edits(const std::vector<diff::Edit>& edits);

}  // namespace steptape::tools
