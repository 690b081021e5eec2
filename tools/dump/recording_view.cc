#include "tools/dump/recording_view.h"

#include "tools/cli/json.h"
#include "tools/cli/output.h"
#include "tools/dump/info_json.h"

namespace steptape::tools {
namespace {

constexpr std::size_t kColumns = 80;

/// Columns that UTF-8 text takes, each character one.
std::size_t width_of(std::string_view text) {
  std::size_t width = 0;
  for (const char c : text) width += (static_cast<unsigned char>(c) & 0xC0U) == 0x80U ? 0 : 1;
  return width;
}

std::string heading_of(const trace::Recording& recording, std::size_t position) {
  const bool is_warm_up = recording.status == trace::Status::kWarmUp;
  return fmt::format("  recording {}  {}{}", position, name_of(recording.status),
                     is_warm_up ? ": it created state, no plan is made from it" : "");
}

}  // namespace

void Lines::list(const std::string& head, const std::vector<std::string>& items) {
  std::string current = indent_ + head;
  const std::string below = indent_ + std::string(width_of(head), ' ');
  bool is_first = true;
  for (std::size_t i = 0; i < items.size(); ++i) {
    const std::string item = items[i] + (i + 1 < items.size() ? "," : "");
    if (!is_first && width_of(current) + 1 + width_of(item) > kColumns) {
      text_ += current + "\n";
      current = below;
      is_first = true;
    }
    current += (is_first ? "" : " ") + item;
    is_first = false;
  }
  text_ += current + "\n";
}

std::string view_text(const trace::Trace& trace, const RecordingView& view) {
  std::string text;
  for (const trace::Step& step : trace.steps) {
    text += fmt::format("{}step {}{}\n", text.empty() ? "" : "\n",
                        toned(Tone::kHeading, shown(step.name)),
                        step.place.empty() ? "" : "  " + shown(step.place));
    for (std::size_t i = 0; i < step.recordings.size(); ++i) {
      text += heading_of(step.recordings[i], i) + "\n" + view.text(step, i);
    }
  }
  return text;
}

Json view_json(const trace::Trace& trace, const RecordingView& view) {
  return {{"steps", steps_json(trace, [&view](const trace::Step& step, std::size_t position) {
             Json json = {{"recording", position},
                          {"status", name_of(step.recordings[position].status)}};
             json.update(view.json(step, position));
             return json;
           })}};
}

}  // namespace steptape::tools
