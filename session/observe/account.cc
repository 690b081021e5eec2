#include "session/observe/account.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <fstream>

#include "replayer/planner/plan_words.h"
#include "session/observe/journal.h"
#include "trace/refusals.h"
#include "trace/text/text.h"

namespace steptape::session {
namespace {

std::string without_space_around(const std::string& text) {
  constexpr auto kSpace = " \t\r\n";
  const std::size_t first = text.find_first_not_of(kSpace);
  if (first == std::string::npos) return "";
  return text.substr(first, text.find_last_not_of(kSpace) + 1 - first);
}

trace::Reason reason_of(const CountedRefusal& counted, const Wording& wording) {
  const Refusal& refusal = counted.refusal;
  const std::string place = line_in(refusal.place);
  const std::string_view comma = refusal.op.empty() || refusal.module.empty() ? "" : ", ";
  return {true,
          std::string(name_of(refusal.code)),
          wording.named(refusal.message),
          fmt::format("{}{}{}", refusal.op, comma, refusal.module),
          place,
          place.empty() ? "" : wording.source_at(place),
          wording.remedy_for(refusal),
          counted.times};
}

trace::Reason reason_of(const CountedVerdict& counted, const Wording& wording) {
  constexpr std::uint64_t kMany = 10;
  trace::Reason reason;
  reason.code = name_of(counted.verdict.kind);
  reason.text = wording.named(text_of(counted.verdict, counted.last_held));
  reason.times = counted.times;
  if (counted.times >= kMany) {
    reason.remedy =
        wording.remedy_for(trace::make_refusal(RefusalCode::kTooManyVariants, reason.text));
  }
  return reason;
}

}  // namespace

std::string Wording::source_at(const std::string& place) const {
  const std::size_t colon = place.rfind(':');
  std::size_t number = 0;
  if (colon == std::string::npos) return "";
  std::from_chars(place.data() + colon + 1, place.data() + place.size(), number);
  std::ifstream file(place.substr(0, colon));
  std::string line;
  while (number > 0 && std::getline(file, line)) --number;
  return number == 0 ? without_space_around(line) : "";
}

std::string line_in(const std::string& place) {
  constexpr std::string_view kBetween = " > ";
  const std::size_t scopes = place.rfind(kBetween);
  const std::string last =
      scopes == std::string::npos ? place : place.substr(scopes + kBetween.size());
  const std::size_t colon = last.rfind(':');
  const bool is_line = colon != std::string::npos && colon + 1 < last.size() &&
                       last.find_first_not_of("0123456789", colon + 1) == std::string::npos;
  return is_line ? last : "";
}

trace::Account account_of(const Stats& stats, const Wording& wording) {
  trace::Account account{stats.recorded, stats.trials, stats.audits,
                         stats.replayed, stats.eager,  {}};
  for (const CountedVerdict& counted : stats.fallbacks) {
    account.reasons.push_back(reason_of(counted, wording));
  }
  for (const CountedRefusal& counted : stats.refusals) {
    account.reasons.push_back(reason_of(counted, wording));
  }
  return account;
}

std::string explain(const std::string& name, const std::string& place, const Stats& stats,
                    std::span<const std::string> differences, const Wording& wording) {
  const trace::Account account = account_of(stats, wording);
  std::string text = trace::heading_of(name, place, account);
  text += wording.named(replayer::plan_lines(stats.variants, differences));
  for (const trace::Reason& reason : account.reasons) text += trace::lines_of(reason);
  const auto add = [&text](const std::string& what, const std::string& which) {
    if (!which.empty()) text += trace::on_one_line("  " + what + ": " + which) + "\n";
  };
  if (stats.last_verdicts.size() > 1) {
    add("last guards that failed", wording.named(text_of(stats.last_verdicts)));
  } else if (!stats.last_verdict) {
    add("last guard that failed", wording.named(stats.last_verdict.text()));
  }
  add("trace not written", stats.trace_problem);
  add("ledger not written", stats.ledger_problem);
  add("log not written", stats.log_problem);
  return text;
}

}  // namespace steptape::session
