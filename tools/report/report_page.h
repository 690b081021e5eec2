#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace steptape::tools {

/// The page of tools/report/ before and after the data that it shows: made by
/// cmake/ReportPage.cmake while building. It takes nothing from a network, and its policy lets no
/// other script run.
std::string_view page_before_data();
std::string_view page_behind_data();

/// One HTML page that shows `data`. Names in a trace are untrusted: nothing in the data can end the
/// element that holds it.
std::string report_page(const nlohmann::ordered_json& data);

}  // namespace steptape::tools
