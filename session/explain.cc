#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <span>
#include <string>

#include "session/fallbacks.h"
#include "session/step_life.h"
#include "trace/text_parts.h"

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

std::string variant_line(const PlanStats& plan) {
  return formatted("  variant %" PRIu64 ": %" PRIu64 " replays of %" PRIu64 " ops in %" PRIu64
                   " calls, %" PRIu64 " by kernels, in %" PRIu64 " passes, arena %" PRIu64
                   " of %" PRIu64 " bytes, planned in %.0f us\n",
                   plan.number, plan.replays, plan.ops, plan.calls, plan.prepared, plan.stages,
                   plan.arena_bytes, plan.temporary_bytes, plan.plan_us);
}

/// So many operators are told; stats() has all, with reasons.
constexpr std::size_t kMostOperators = 6;

/// "    by the dispatcher: aten::bernoulli_.float, 3× aten::convolution"
std::string kernel_lines(const PlanStats& plan) {
  std::string text;
  if (plan.lacks_blas) {
    text += "    no sgemm of LibTorch's was found: products are done by its own kernels\n";
  }
  if (plan.unprepared.empty()) return text;
  const std::size_t shown = std::min(plan.unprepared.size(), kMostOperators);
  std::string list;
  for (const CountedReason& each : std::span(plan.unprepared).first(shown)) {
    const std::string name = each.reason.substr(0, each.reason.find(": "));
    list += (list.empty() ? "" : ", ") +
            (each.calls > 1 ? formatted("%" PRIu64 "× ", each.calls) : "") +
            trace::on_one_line(name);
  }
  const std::size_t more = plan.unprepared.size() - shown;
  if (more > 0) list += formatted(" and %zu more", more);
  return text + "    by the dispatcher: " + list + "\n";
}

/// "    side by side: 12 passes on 2 threads, 221 us beside 292 in order"
std::string lanes_line(const PlanStats& plan) {
  std::string text;
  if (plan.shared_stages > 0) {
    text = formatted("    side by side: %" PRIu64 " passes on %" PRIu64
                     " threads, %.0f us beside %.0f in order\n",
                     plan.shared_stages, plan.lanes, plan.shared_us, plan.in_order_us);
  }
  if (plan.lanes_differed) {
    text += "    side by side, passes left other bits in their trial: they are done in order\n";
  }
  return text;
}

std::string rebound_line(const PlanStats& plan) {
  if (plan.rebinds == 0) return "";
  return formatted("    took up moved memory of tracked tensors %" PRIu64 "×\n", plan.rebinds);
}

std::string warm_start_line(const PlanStats& plan) {
  return plan.is_warm_start ? "    one probe agreed with the trace of an earlier run\n" : "";
}

std::string fused_line(const PlanStats& plan) {
  if (plan.largest_ulps < 0) return "";
  return formatted("    fused updates: at most %.1f units in the last place from the eager ones\n",
                   plan.largest_ulps);
}

}  // namespace

std::string explain(const PlanStats& plan, const std::string& difference) {
  std::string text = variant_line(plan);
  if (!difference.empty()) text += "    " + trace::on_one_line(difference) + "\n";
  return text + kernel_lines(plan) + lanes_line(plan) + warm_start_line(plan) + rebound_line(plan) +
         fused_line(plan);
}

std::string explain(const std::string& name, const std::string& place, const Stats& stats,
                    std::span<const std::string> differences) {
  std::string text =
      formatted("step \"%s\" (%s): %" PRIu64 " calls: %" PRIu64 " recorded, %" PRIu64
                " trials, %" PRIu64 " audits, %" PRIu64 " replayed, %" PRIu64 " eager\n",
                trace::on_one_line(name).c_str(), trace::on_one_line(place).c_str(), stats.steps,
                stats.recorded, stats.trials, stats.audits, stats.replayed, stats.eager);
  for (std::size_t i = 0; i < stats.variants.size(); ++i) {
    text += explain(stats.variants[i], i < differences.size() ? differences[i] : "");
  }
  for (const CountedVerdict& counted : stats.fallbacks) {
    text += formatted("  fell back %" PRIu64 "×: ", counted.times) +
            trace::on_one_line(text_of(counted.verdict, counted.last_held)) + "\n";
  }
  for (const CountedRefusal& counted : stats.refusals) {
    text += formatted("  refused %" PRIu64 "×: ", counted.times) +
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
