#pragma once

#include <nlohmann/json.hpp>

#include "tools/diff_policy.h"
#include "trace/diff.h"

namespace steptape::tools {

/// What `steptape diff --json` prints of two traces: every edit and finding that is told.
nlohmann::ordered_json diff_json(const trace::Diff& diff, const trace::Trace& a,
                                 const trace::Trace& b, const DiffPolicy& policy);

/// In what an op differs.
nlohmann::ordered_json changes_json(const std::vector<trace::OpChange>& changes);
/// Ops and edits of each module.
nlohmann::ordered_json stats_json(const std::vector<trace::ModuleStat>& stats);

}  // namespace steptape::tools
