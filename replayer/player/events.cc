#include "replayer/player/events.h"

#include <nlohmann/json.hpp>

namespace steptape {

std::string_view name_of(PlayerEvent::Kind kind) noexcept {
  using Kind = PlayerEvent::Kind;
  switch (kind) {
    case Kind::kRan:
      return "ran";
    case Kind::kRefused:
      return "refused";
    case Kind::kFailed:
      return "failed";
    case Kind::kPublished:
      return "published";
    case Kind::kWeightsLoaded:
      return "weights_loaded";
    case Kind::kSnapshot:
      return "snapshot";
    case Kind::kSnapshotFailed:
      return "snapshot_failed";
  }
  return "unknown";
}

std::string PlayerEvent::json() const {
  nlohmann::ordered_json line = {{"event", name_of(kind)}};
  if (!step.empty()) line["step"] = step;
  line["us"] = us;
  if (!text.empty()) line["text"] = text;
  // names come from a file and may be any bytes
  return line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

namespace replayer {

void Events::tell(const PlayerEvent& event) const noexcept {
  if (!tell_) return;
  try {
    tell_(event);
  } catch (...) {  // NOLINT(bugprone-empty-catch): said in LoadOptions::on_event
  }
}

}  // namespace replayer
}  // namespace steptape
