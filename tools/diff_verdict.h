#pragma once

#include <string>

#include "tools/diff_policy.h"
#include "trace/diff.h"

namespace steptape::tools {

/// "differ: ledger (train: call 57: results), structure (3 inserted, 1 changed), modules (2)", in
/// the order of the sections; "equal" where nothing that is told differs; "equal but for place (1)"
/// where nothing counts that does.
std::string verdict_of(const trace::Diff& diff, const DiffPolicy& policy);

/// "22 inserted, 3 changed": edits by kind, those that occur.
std::string words_of_edits(const std::vector<trace::Edit>& edits);

}  // namespace steptape::tools
