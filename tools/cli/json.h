#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>

namespace steptape::tools {

using Json = nlohmann::ordered_json;

/// JSON for the standard output; bytes that are no UTF-8 become U+FFFD.
inline std::string json_text(const Json& json) {
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

/// The list of what `convert` makes of each item.
template <typename Items, typename Convert>
Json each(const Items& items, Convert&& convert) {
  Json json = Json::array();
  for (const auto& item : items) json.push_back(std::invoke(convert, item));
  return json;
}

/// The object of what `convert` makes of each item's value, under the item's name.
template <typename Items, typename Convert>
Json by_name(const Items& items, Convert&& convert) {
  Json json = Json::object();
  for (const auto& item : items) json[item.name] = std::invoke(convert, item.value);
  return json;
}

/// An id or index, or null where it is `none`.
template <typename Number>
Json number_or_null(Number number, Number none) {
  return number == none ? Json() : Json(number);
}

}  // namespace steptape::tools
