#include <algorithm>

#include "tools/cli/output.h"
#include "tools/dump/dumps.h"
#include "trace/compare/guard_differences.h"
#include "trace/compare/guard_list.h"

namespace steptape::tools {
namespace {

using Json = nlohmann::ordered_json;

/// So many differences of two variants are put into words.
constexpr std::size_t kDifferences = 12;

/// The first recording of a step that plans are made from, if it comes before `position`.
const trace::Recording* first_variant(const trace::Step& step, std::size_t position) {
  for (std::size_t i = 0; i < position; ++i) {
    if (step.recordings[i].standing != trace::Standing::kWarmUp) return &step.recordings[i];
  }
  return nullptr;
}

std::string words_of(const trace::Guard& guard) {
  std::string words = shown(guard.path) + ": " + shown(guard.expected);
  if (!guard.also_holds.empty()) words += " (or " + guard.also_holds + ")";
  for (const std::string& alias : guard.aliases) words += ", also " + shown(alias);
  return words;
}

Json guard_json(const trace::Guard& guard) {
  return {{"kind", name_of(guard.kind)},
          {"path", guard.path},
          {"expected", guard.expected},
          {"also_holds", guard.also_holds.empty() ? Json() : Json(guard.also_holds)},
          {"aliases", guard.aliases}};
}

Json differences_json(const trace::Step& step, std::size_t position) {
  const trace::Recording* first = first_variant(step, position);
  if (first == nullptr) return nullptr;
  Json differences = Json::array();
  for (const auto& difference : trace::guard_differences(*first, step.recordings[position])) {
    differences.push_back({{"kind", name_of(difference.kind)},
                           {"path", difference.path},
                           {"expected", difference.expected},
                           {"found", difference.found}});
  }
  return {{"recording", first - step.recordings.data()}, {"differences", differences}};
}

}  // namespace

std::string GuardsView::text(const trace::Step& step, std::size_t position) const {
  const trace::Recording& recording = step.recordings[position];
  if (recording.standing == trace::Standing::kWarmUp) return "";
  Lines out("    ");
  if (const trace::Recording* first = first_variant(step, position)) {
    out.line("differs from recording {} in: {}", first - step.recordings.data(),
             shown(text_of(trace::guard_differences(*first, recording), kDifferences)));
  }
  const std::vector<trace::Guard> guards = trace::guards_of(recording);
  out.line("{}", count_of(guards.size(), "guard"));
  for (const GuardKind kind : guard_kinds()) {
    const auto count = std::ranges::count(guards, kind, &trace::Guard::kind);
    if (count == 0) continue;
    out.line("{}  {}", toned(Tone::kHeading, name_of(kind)), count);
    for (const trace::Guard& guard : guards) {
      if (guard.kind == kind) out.line("  {}", words_of(guard));
    }
  }
  return out.take();
}

Json GuardsView::json(const trace::Step& step, std::size_t position) const {
  Json guards = Json::array();
  const trace::Recording& recording = step.recordings[position];
  if (recording.standing == trace::Standing::kWarmUp) return {{"guards", guards}};
  for (const trace::Guard& guard : trace::guards_of(recording)) guards.push_back(guard_json(guard));
  return {{"differs_from", differences_json(step, position)}, {"guards", guards}};
}

}  // namespace steptape::tools
