#pragma once

#include <nlohmann/json.hpp>

#include "trace/model.h"
#include "trace/text/text.h"

namespace steptape::tools {

/// What `steptape dump --json` prints: the trace, with values as the text form shows them.
nlohmann::ordered_json dump_json(const trace::Trace& trace, trace::Contents contents);

}  // namespace steptape::tools
