#include <fmt/format.h>

#include <span>
#include <string>

#include "replayer/planner/plan_words.h"
#include "session/observe/fallbacks.h"
#include "session/step_life.h"
#include "trace/text/text_parts.h"

namespace steptape::session {

std::string explain(const std::string& name, const std::string& place, const Stats& stats,
                    std::span<const std::string> differences) {
  std::string text = fmt::format(
      "step \"{}\" ({}): {} calls: {} recorded, {} trials, {} audits, {} replayed, {} eager\n",
      trace::on_one_line(name), trace::on_one_line(place), stats.steps, stats.recorded,
      stats.trials, stats.audits, stats.replayed, stats.eager);
  text += replayer::plan_lines(stats.variants, differences);
  for (const CountedVerdict& counted : stats.fallbacks) {
    text += fmt::format("  fell back {}×: ", counted.times) +
            trace::on_one_line(text_of(counted.verdict, counted.last_held)) + "\n";
  }
  for (const CountedRefusal& counted : stats.refusals) {
    text += fmt::format("  refused {}×: ", counted.times) +
            trace::on_one_line(counted.refusal.text()) + "\n";
  }
  if (stats.last_verdicts.size() > 1) {
    text += "  last guards that failed: " + trace::on_one_line(text_of(stats.last_verdicts)) + "\n";
  } else if (!stats.last_verdict) {
    text += "  last guard that failed: " + trace::on_one_line(stats.last_verdict.text()) + "\n";
  }
  return text;
}

}  // namespace steptape::session
