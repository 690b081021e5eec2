#include "tools/dump/ledger_view.h"

#include <fmt/format.h>

#include "tools/cli/json.h"
#include "tools/cli/output.h"

namespace steptape::tools {
namespace {

std::filesystem::path ledger_of(const std::filesystem::path& path) {
  const std::filesystem::path beside = storage::ledger_beside(path);
  return !storage::is_ledger(path) && std::filesystem::exists(beside) ? beside : path;
}

/// In hexadecimal: JSON's numbers end at 53 bits.
Json digest_json(std::uint64_t digest, int digits) {
  return digest == 0 ? Json() : Json(fmt::format("{:0{}x}", digest, digits));
}

Json times_json(const diff::Times& times) {
  return {{"calls", times.count},
          {"lower_quartile_us", times.lower_quartile},
          {"median_us", times.median},
          {"upper_quartile_us", times.upper_quartile},
          {"percentile_95_us", times.percentile_95}};
}

using diff::PartStatus;

constexpr const char* kRow =
    "{:>9}  {:<8} {:>8} {:>9}  {:<16} {:<16} {:<16} {:<16} {:<10} {:<15} {}\n";

std::string digest_text(std::uint64_t digest, int digits) {
  return digest == 0 ? "-" : fmt::format("{:0{}x}", digest, digits);
}

std::string share_of(std::uint64_t part, std::uint64_t all) {
  return fmt::format("{:.1f} %",
                     all == 0 ? 0. : 100. * static_cast<double>(part) / static_cast<double>(all));
}

std::string words_of(const diff::CallDifference& difference) {
  const std::string equal = difference.words_of(PartStatus::kEqual);
  return fmt::format("call {}: {} differ{}: {}", difference.call,
                     difference.words_of(PartStatus::kDiffers),
                     equal.empty() ? "" : "; " + equal + " equal", difference.origin());
}

std::string words_of(const diff::CallTimeDifference& time) {
  if (time.differs()) return "differs";
  if (time.is_comparable()) return "within the noise";
  return fmt::format("too few to compare, which takes {} each", time.fewest);
}

}  // namespace

storage::FoundLedger open_ledger(const std::filesystem::path& path, storage::OnDamage on_damage) {
  const std::filesystem::path file = ledger_of(path);
  storage::FoundLedger found = storage::read_ledger(file, on_damage);
  if (!found.damage.empty()) complain(fmt::format("{}: {}", file.string(), shown(found.damage)));
  if (found.torn_bytes > 0) {
    complain(fmt::format("{}: the last {} were being written when the machine stopped",
                         file.string(), size_of(found.torn_bytes)));
  }
  return found;
}

Json line_json(const trace::Ledger& ledger, const trace::LedgerLine& line) {
  return {{"step", ledger.steps[line.step]},
          {"call", line.call},
          {"outcome", name_of(line.outcome)},
          {"verdict", line.verdict == GuardKind::kNone ? Json() : Json(name_of(line.verdict))},
          {"variant", number_or_null(line.variant, trace::LedgerLine::kNoVariant)},
          {"us", line.microseconds},
          {"inputs", digest_json(line.inputs, 16)},
          {"results", digest_json(line.results, 16)},
          {"gradients", digest_json(line.gradients, 16)},
          {"parameters", digest_json(line.parameters, 16)},
          {"generators", digest_json(line.generators, 8)}};
}

Json summary_json(const diff::LedgerSummary& summary) {
  Json outcomes = Json::object();
  for (const diff::OutcomeSummary& outcome : summary.outcomes) {
    outcomes[std::string(name_of(outcome.outcome))] = times_json(outcome.times);
  }
  Json verdicts = Json::object();
  for (const diff::VerdictCount& verdict : summary.verdicts) {
    verdicts[std::string(name_of(verdict.kind))] = verdict.calls;
  }
  return {{"calls", summary.calls},
          {"replayed", summary.replayed},
          {"outcomes", outcomes},
          {"verdicts", verdicts}};
}

Json difference_json(const diff::CallDifference& difference) {
  Json json = {{"call", difference.call}, {"origin", difference.origin()}};
  for (const diff::CallPart part : diff::call_parts()) {
    json[std::string(name_of(part))] = name_of(difference.of(part));
  }
  return json;
}

Json ledger_diff_json(const diff::LedgerDiff& diff) {
  const auto step_json = [](const diff::StepLedgerDiff& step) {
    Json times = Json::object();
    for (const diff::CallTimeDifference& time : step.times) {
      times[std::string(name_of(time.outcome))] = {{"comparable", time.is_comparable()},
                                                   {"differs", time.differs()},
                                                   {"a", times_json(time.a)},
                                                   {"b", times_json(time.b)}};
    }
    return Json{{"name", step.name},
                {"compared", step.compared},
                {"differing", step.differing},
                {"noisy", step.noisy},
                {"without_digests", step.without_digests},
                {"only_in_a", step.only_in_a},
                {"only_in_b", step.only_in_b},
                {"first", step.first ? difference_json(*step.first) : Json()},
                {"times", times}};
  };
  return {{"verdict", diff.verdict()}, {"steps", each(diff.steps, step_json)}};
}

std::string table_heading() {
  return fmt::format(fmt::runtime(kRow), "call", "outcome", "variant", "µs ", "inputs", "results",
                     "gradients", "parameters", "generators", "verdict", "step");
}

std::string line_text(const trace::Ledger& ledger, const trace::LedgerLine& line) {
  const bool has_variant = line.variant != trace::LedgerLine::kNoVariant;
  const bool has_verdict = line.verdict != GuardKind::kNone;
  return fmt::format(fmt::runtime(kRow), line.call, name_of(line.outcome),
                     has_variant ? std::to_string(line.variant) : "-", line.microseconds,
                     digest_text(line.inputs, 16), digest_text(line.results, 16),
                     digest_text(line.gradients, 16), digest_text(line.parameters, 16),
                     digest_text(line.generators, 8), has_verdict ? name_of(line.verdict) : "-",
                     shown(ledger.steps[line.step]));
}

std::string summary_text(const diff::LedgerSummary& summary) {
  std::string text = fmt::format("{}, {} replayed\n", count_of(summary.calls, "call"),
                                 share_of(summary.replayed, summary.calls));
  for (const auto& [outcome, times] : summary.outcomes) {
    text += fmt::format("  {:<8} {:>9}  median {} µs, 95 % within {} µs\n", name_of(outcome),
                        times.count, times.median, times.percentile_95);
  }
  for (const auto& [kind, calls] : summary.verdicts) {
    text += fmt::format("  fell back for {}: {}\n", name_of(kind), calls);
  }
  return text;
}

std::string ledger_diff_text(const diff::LedgerDiff& diff) {
  std::string text = toned(Tone::kHeading, "ledger") + "\n";
  for (const diff::StepLedgerDiff& step : diff.steps) {
    text += fmt::format("  {}: {} compared, {} differ", shown(step.name),
                        count_of(step.compared, "call"), step.differing);
    if (step.noisy > 0) text += fmt::format(", {} of them noise", step.noisy);
    if (step.only_in_a > 0) text += fmt::format(", {} only in the first", step.only_in_a);
    if (step.only_in_b > 0) text += fmt::format(", {} only in the second", step.only_in_b);
    if (step.without_digests > 0) text += fmt::format(", {} without digests", step.without_digests);
    text += "\n";
    if (step.first) text += "    " + words_of(*step.first) + "\n";
  }
  return text;
}

std::string time_diff_text(const diff::LedgerDiff& diff) {
  std::string text;
  for (const diff::StepLedgerDiff& step : diff.steps) {
    for (const auto& time : step.times) {
      text += fmt::format(
          "  {} {}: {} → {} µs, middle half {} to {} → {} to {}, of {} and {} calls: {}\n",
          shown(step.name), name_of(time.outcome), time.a.median, time.b.median,
          time.a.lower_quartile, time.a.upper_quartile, time.b.lower_quartile,
          time.b.upper_quartile, time.a.count, time.b.count, words_of(time));
    }
  }
  return text;
}

}  // namespace steptape::tools
