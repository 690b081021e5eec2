#include "session/observe/event.h"

#include <array>
#include <cstddef>
#include <nlohmann/json.hpp>

#include "trace/text/text.h"

namespace steptape::session {
namespace {

constexpr std::array<std::string_view, 6> kNames = {"guards", "plan",   "verify",
                                                    "record", "refuse", "trace"};

/// What a person needs of a place: the file's name and the line.
std::string short_place(const std::string& place) {
  return place.substr(place.find_last_of('/') + 1);
}

}  // namespace

std::string_view name_of(Category category) noexcept {
  return kNames.at(static_cast<std::size_t>(category));
}

std::string line_of(const Event& event) {
  return trace::on_one_line("steptape: session " + std::to_string(event.session) + ", step \"" +
                            event.step + "\" (" + short_place(event.place) + "), call " +
                            std::to_string(event.call) + ": " +
                            std::string(name_of(event.category)) + ": " + event.text);
}

std::string json_of(const Event& event, double time_s) {
  nlohmann::ordered_json line = {{"time_s", time_s},   {"session", event.session},
                                 {"step", event.step}, {"place", event.place},
                                 {"call", event.call}, {"category", name_of(event.category)},
                                 {"event", event.name}};
  if (event.variant) line["variant"] = *event.variant;
  if (event.verdict) {
    const Verdict& verdict = event.verdict->verdict;
    line["kind"] = name_of(verdict.kind);
    line["path"] = verdict.path;
    line["expected"] = verdict.expected;
    line["found"] = verdict.found;
    line["last_held"] = event.verdict->last_held;
    line["times"] = event.verdict->times;
  }
  if (event.code) line["code"] = name_of(*event.code);
  if (event.plan) {
    line["ops"] = event.plan->ops;
    line["calls"] = event.plan->calls;
  }
  if (event.us) line["us"] = *event.us;
  line["text"] = event.text;
  // names and messages may be any bytes
  return line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace steptape::session
