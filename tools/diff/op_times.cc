#include "tools/diff/op_times.h"

#include <fmt/format.h>

#include <algorithm>

#include "tools/cli/json.h"
#include "tools/cli/output.h"

namespace steptape::tools {
namespace {

Json side_json(const diff::Times& times) {
  return {{"recordings", times.count},
          {"least_ns", times.least},
          {"lower_quartile_ns", times.lower_quartile},
          {"median_ns", times.median},
          {"upper_quartile_ns", times.upper_quartile},
          {"most_ns", times.most}};
}

Json difference_json(const diff::OpTimeDifference& times) {
  return {{"comparable", times.is_comparable()},
          {"differs", times.differs()},
          {"band", times.has_middle_halves() ? "middle_half" : "all"},
          {"a", side_json(times.a)},
          {"b", side_json(times.b)}};
}

/// So many modules are shown where not all are.
constexpr std::size_t kMostModules = 8;

double microseconds(std::uint64_t nanoseconds) { return static_cast<double>(nanoseconds) / 1e3; }

std::string band_text(std::uint64_t lower, std::uint64_t upper) {
  return fmt::format("{:.1f} to {:.1f}", microseconds(lower), microseconds(upper));
}

std::string verdict_of(const diff::OpTimeDifference& times) {
  if (times.differs()) return toned(Tone::kBad, "differs");
  if (times.is_comparable()) return "within the noise";
  return fmt::format("too few to compare, which takes {} each", times.fewest);
}

/// "120.1 → 140.0 µs, middle half 118.0 to 122.4 → 138.2 to 142.0, of 12 and 12 recordings:
/// differs"
std::string words_of(const diff::OpTimeDifference& times) {
  const diff::Times& a = times.a;
  const diff::Times& b = times.b;
  const std::string bands =
      times.has_middle_halves()
          ? "middle half " + band_text(a.lower_quartile, a.upper_quartile) + " → " +
                band_text(b.lower_quartile, b.upper_quartile)
          : "all within " + band_text(a.least, a.most) + " → " + band_text(b.least, b.most);
  return fmt::format("{:.1f} → {:.1f} µs, {}, of {} and {} recordings: {}", microseconds(a.median),
                     microseconds(b.median), bands, a.count, b.count, verdict_of(times));
}

}  // namespace

Json op_times_json(const diff::OpTimeDifferences& times) {
  const auto module_json = [](const diff::OpTimeDifference& module) {
    Json json = {{"module", module.module}};
    json.update(difference_json(module));
    return json;
  };
  return {{"step", difference_json(times.step)}, {"modules", each(times.modules, module_json)}};
}

std::string op_times_text(const diff::StepDiff& step, Detail detail) {
  if (!step.op_times_only_in.empty()) {
    return fmt::format("  {} ops: only the {} trace says how long they took\n", shown(step.name),
                       step.op_times_only_in == "a" ? "first" : "second");
  }
  if (!step.op_times) return {};
  std::string text = fmt::format("  {} ops: {}\n", shown(step.name), words_of(step.op_times->step));
  if (detail == Detail::kCounts) return text;
  const auto& modules = step.op_times->modules;
  const std::size_t most =
      detail == Detail::kAll ? modules.size() : std::min(kMostModules, modules.size());
  for (std::size_t i = 0; i < most; ++i) {
    text += fmt::format("    {}: {}\n", shown_module(modules[i].module), words_of(modules[i]));
  }
  if (most < modules.size()) text += fmt::format("    and {} more\n", modules.size() - most);
  return text;
}

}  // namespace steptape::tools
