#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>

#include "trace/model.h"

namespace steptape::tools {

/// What `steptape info --json` prints.
nlohmann::ordered_json info_json(const std::filesystem::path& path, const trace::Trace& trace);

/// JSON for the standard output; bytes that are no UTF-8 become U+FFFD.
std::string json_text(const nlohmann::ordered_json& json);
nlohmann::ordered_json facts_json(const std::vector<trace::Fact>& facts);
nlohmann::ordered_json refusals_json(const std::vector<Refusal>& refusals);

}  // namespace steptape::tools
