#pragma once

#include "diff/diff.h"
#include "tools/cli/json.h"
#include "tools/diff/diff_verdict.h"

namespace steptape::tools {

/// What `steptape diff --json` prints of two traces: every edit and finding that is told.
Json diff_json(const diff::Diff& diff, const trace::Trace& a, const trace::Trace& b,
               const DiffPolicy& policy);

/// In what an op differs.
Json changes_json(const std::vector<diff::OpChange>& changes);
/// Ops and edits of each module.
Json stats_json(const std::vector<diff::ModuleStat>& stats);

}  // namespace steptape::tools
