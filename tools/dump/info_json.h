#pragma once

#include <filesystem>
#include <functional>
#include <vector>

#include "tools/cli/json.h"
#include "trace/compare/finding.h"
#include "trace/model.h"

namespace steptape::tools {

/// What `steptape info --json` prints.
Json info_json(const std::filesystem::path& path, const trace::Trace& trace);

Json facts_json(const std::vector<trace::Fact>& facts);
Json finding_json(const trace::Finding& finding);
Json refusals_json(const std::vector<Refusal>& refusals);

/// Each step with what `convert` makes of its recordings, by their positions.
Json steps_json(const trace::Trace& trace,
                const std::function<Json(const trace::Step& step, std::size_t position)>& convert);

}  // namespace steptape::tools
