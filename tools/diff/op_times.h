#pragma once

#include <string>

#include "diff/diff.h"
#include "diff/ledger/times.h"
#include "tools/cli/json.h"
#include "tools/diff/diff_text.h"

namespace steptape::tools {

/// How long the ops of a step, and of each of its modules, took on both sides.
Json op_times_json(const diff::OpTimeDifferences& times);

/// How long the ops of a step took on both sides: a line for all of them, then one for each module,
/// what differs most first. Empty where neither side says.
std::string op_times_text(const diff::StepDiff& step, Detail detail);

}  // namespace steptape::tools
