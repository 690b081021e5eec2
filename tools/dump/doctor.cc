#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "tools/cli/commands.h"
#include "tools/cli/json.h"
#include "tools/cli/output.h"
#include "tools/cli/trace_choice.h"
#include "trace/account.h"
#include "trace/model.h"

namespace steptape::tools {
namespace {

constexpr std::size_t kMostReasons = 10;

/// Most of its calls ran without a plan.
bool is_ill(const trace::Account& account) { return 2 * account.replayed < account.calls(); }

std::vector<trace::Reason> by_frequency(std::vector<trace::Reason> reasons) {
  std::ranges::stable_sort(reasons, std::greater(), &trace::Reason::times);
  if (reasons.size() > kMostReasons) reasons.resize(kMostReasons);
  return reasons;
}

/// What the counts say where no reason does.
std::string advice_on(const trace::Account& account) {
  if (!is_ill(account)) return "";
  if (account.recorded + account.trials == account.calls()) {
    return "  each call was recorded: of a step that is wrapped anew, in a loop, the first calls "
           "are; wrap it once\n";
  }
  if (!account.reasons.empty()) return "";
  return "  too few calls came after the plan was made\n";
}

std::string text_of(const trace::Step& step) {
  const trace::Account& account = step.account;
  if (account.calls() == 0) {
    const std::string place =
        step.place.empty() ? "" : " (" + shown(trace::short_place(step.place)) + ")";
    return fmt::format("step \"{}\"{}: the trace does not say what became of its calls\n",
                       shown(step.name), place);
  }
  std::string text = toned(Tone::kHeading, trace::heading_of(step.name, step.place, account));
  const std::string share =
      fmt::format("{:.1f} % replayed", 100.0 * static_cast<double>(account.replayed) /
                                           static_cast<double>(account.calls()));
  text += "  " + toned(is_ill(account) ? Tone::kBad : Tone::kGood, share) + "\n";
  for (const trace::Reason& reason : by_frequency(account.reasons)) text += lines_of(reason);
  return text + advice_on(account);
}

Json json_of(const trace::Step& step) {
  const trace::Account& account = step.account;
  const auto reason_json = [](const trace::Reason& reason) {
    return Json{{"times", reason.times},   {"refusal", reason.is_refusal}, {"code", reason.code},
                {"reason", reason.text},   {"where", reason.where},        {"place", reason.place},
                {"source", reason.source}, {"remedy", reason.remedy}};
  };
  return {{"step", step.name},
          {"place", step.place},
          {"calls", account.calls()},
          {"recorded", account.recorded},
          {"trials", account.trials},
          {"audits", account.audits},
          {"replayed", account.replayed},
          {"eager", account.eager},
          {"reasons", each(by_frequency(account.reasons), reason_json)}};
}

}  // namespace

void add_doctor(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand("doctor", "Say why calls of a step were not replayed");
  auto options = std::make_shared<FileOptions>();
  command->add_option("FILE", options->path, "A trace")->required();
  command->add_option("--step", options->step, "Only the step of this name");
  command->add_flag("--json", options->json, "Print JSON");
  command->add_flag("--partial", options->partial, "Show what is left of a damaged file");
  command->footer(
      "The ten commonest reasons of each step, with the line of the program and what to change.\n"
      "Examples:\n"
      "  steptape doctor run.tape\n"
      "  steptape doctor run.tape --json | jq -r '.steps[].reasons[].remedy'\n"
      "Exit status: 0 half of the calls or more were replayed, 1 fewer of some step, 2 trouble.");
  command->callback([options, &exit_code] {
    const trace::Trace trace = options->open();
    std::string text;
    for (const trace::Step& step : trace.steps) text += (text.empty() ? "" : "\n") + text_of(step);
    put(options->json ? json_text({{"file", options->path}, {"steps", each(trace.steps, json_of)}})
                      : text);
    const bool is_well = std::ranges::none_of(trace.steps, is_ill, &trace::Step::account);
    exit_code = is_well ? kGood : kDiffers;
  });
}

}  // namespace steptape::tools
