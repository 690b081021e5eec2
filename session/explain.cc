#include <cinttypes>
#include <cstdio>
#include <string>

#include "session/step_life.h"

namespace steptape::session {
namespace {

template <typename... A>
std::string formatted(const char* format, A... arguments) {
  const int length = std::snprintf(nullptr, 0, format, arguments...);
  std::string text(static_cast<std::size_t>(length) + 1, '\0');
  std::snprintf(text.data(), text.size(), format, arguments...);
  text.pop_back();
  return text;
}

std::string variant_line(std::size_t index, const PlanStats& plan) {
  return formatted("  variant %zu: %" PRIu64 " replays of %" PRIu64 " ops in %" PRIu64
                   " calls, arena %" PRIu64 " of %" PRIu64 " bytes, planned in %.0f us\n",
                   index, plan.replays, plan.ops, plan.calls, plan.arena_bytes,
                   plan.temporary_bytes, plan.plan_us);
}

std::string fused_line(const PlanStats& plan) {
  if (plan.largest_ulps < 0) return "";
  return formatted("    fused updates: at most %.1f units in the last place from the eager ones\n",
                   plan.largest_ulps);
}

}  // namespace

std::string explain(const std::string& name, const std::string& place, const Stats& stats) {
  std::string text =
      formatted("step \"%s\" (%s): %" PRIu64 " calls: %" PRIu64 " recorded, %" PRIu64
                " trials, %" PRIu64 " audits, %" PRIu64 " replayed, %" PRIu64 " eager\n",
                name.c_str(), place.c_str(), stats.steps, stats.recorded, stats.trials,
                stats.audits, stats.replayed, stats.eager);
  for (std::size_t i = 0; i < stats.variants.size(); ++i)
    text += variant_line(i, stats.variants[i]) + fused_line(stats.variants[i]);
  for (const CountedRefusal& counted : stats.refusals) {
    text += formatted("  refused %" PRIu64 "×: ", counted.times) + counted.refusal.text() + "\n";
  }
  if (!stats.last_verdict) text += "  last guard that failed: " + stats.last_verdict.text() + "\n";
  return text;
}

}  // namespace steptape::session
