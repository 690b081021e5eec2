#include "tools/dump/ledger_json.h"

#include <fmt/format.h>

namespace steptape::tools {
namespace {

using Json = nlohmann::ordered_json;

/// In hexadecimal: JSON's numbers end at 53 bits.
Json digest_json(std::uint64_t digest, int digits) {
  return digest == 0 ? Json() : Json(fmt::format("{:0{}x}", digest, digits));
}

Json times_json(const diff::CallTimes& times) {
  return {{"calls", times.calls},
          {"lower_quartile_us", times.lower_quartile},
          {"median_us", times.median},
          {"upper_quartile_us", times.upper_quartile},
          {"percentile_95_us", times.percentile_95}};
}

}  // namespace

Json line_json(const trace::Ledger& ledger, const trace::LedgerLine& line) {
  Json json = {{"step", ledger.steps[line.step]},
               {"call", line.call},
               {"outcome", name_of(line.outcome)},
               {"verdict", line.verdict == GuardKind::kNone ? Json() : Json(name_of(line.verdict))},
               {"variant", nullptr},
               {"us", line.microseconds},
               {"inputs", digest_json(line.inputs, 16)},
               {"results", digest_json(line.results, 16)},
               {"gradients", digest_json(line.gradients, 16)},
               {"parameters", digest_json(line.parameters, 16)},
               {"generators", digest_json(line.generators, 8)}};
  if (line.variant != trace::LedgerLine::kNoVariant) json["variant"] = line.variant;
  return json;
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
  Json steps = Json::array();
  for (const diff::StepLedgerDiff& step : diff.steps) {
    Json times = Json::object();
    for (const diff::TimeDifference& time : step.times) {
      times[std::string(name_of(time.outcome))] = {{"comparable", time.is_comparable()},
                                                   {"differs", time.differs()},
                                                   {"a", times_json(time.a)},
                                                   {"b", times_json(time.b)}};
    }
    steps.push_back({{"name", step.name},
                     {"compared", step.compared},
                     {"differing", step.differing},
                     {"noisy", step.noisy},
                     {"without_digests", step.without_digests},
                     {"only_in_a", step.only_in_a},
                     {"only_in_b", step.only_in_b},
                     {"first", step.first ? difference_json(*step.first) : Json()},
                     {"times", times}});
  }
  return {{"verdict", diff.verdict()}, {"steps", steps}};
}

}  // namespace steptape::tools
