#include "session/observe/event.h"

#include <array>
#include <cstddef>

#include "session/observe/json_line.h"
#include "trace/text/text_parts.h"

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
  JsonLine line;
  line.add_real("time_s", time_s);
  line.add_count("session", event.session);
  line.add_text("step", event.step);
  line.add_text("place", event.place);
  line.add_count("call", event.call);
  line.add_text("category", name_of(event.category));
  line.add_text("event", event.name);
  if (event.variant) line.add_count("variant", *event.variant);
  if (event.verdict) {
    const Verdict& verdict = event.verdict->verdict;
    line.add_text("kind", name_of(verdict.kind));
    line.add_text("path", verdict.path);
    line.add_text("expected", verdict.expected);
    line.add_text("found", verdict.found);
    line.add_count("last_held", event.verdict->last_held);
    line.add_count("times", event.verdict->times);
  }
  if (event.code) line.add_text("code", name_of(*event.code));
  if (event.plan) {
    line.add_count("ops", event.plan->ops);
    line.add_count("calls", event.plan->calls);
  }
  if (event.us) line.add_real("us", *event.us);
  line.add_text("text", event.text);
  return line.text();
}

}  // namespace steptape::session
