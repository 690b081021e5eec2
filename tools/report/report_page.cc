#include "tools/report/report_page.h"

namespace steptape::tools {
namespace {

/// Characters that mean something to HTML stand only in strings of JSON, where they can be escaped.
void append_escaped(std::string& page, char c) {
  switch (c) {
    case '<':
      page += "\\u003c";
      break;
    case '>':
      page += "\\u003e";
      break;
    case '&':
      page += "\\u0026";
      break;
    default:
      page += c;
  }
}

}  // namespace

std::string report_page(const nlohmann::ordered_json& data) {
  using Json = nlohmann::ordered_json;
  constexpr int kOneLine = -1;
  constexpr bool kAsciiAlone = true;
  const std::string json = data.dump(kOneLine, ' ', kAsciiAlone, Json::error_handler_t::replace);
  std::string page(page_before_data());
  page.reserve(page.size() + json.size() + json.size() / 16 + page_behind_data().size());
  for (const char c : json) append_escaped(page, c);
  page += page_behind_data();
  return page;
}

}  // namespace steptape::tools
