#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "steptape/error.h"
#include "tools/cli/commands.h"
#include "tools/cli/output.h"
#include "tools/dump/info_json.h"
#include "tools/dump/ledger_view.h"

namespace steptape::tools {
namespace {

using LinesShown = std::vector<const trace::LedgerLine*>;

struct LedgerOptions {
  std::string path;
  std::string step;
  std::optional<std::size_t> tail;
  bool json = false;
  bool partial = false;
};

/// The last lines that are asked for, of the step that is asked for.
LinesShown lines_of(const trace::Ledger& ledger, const LedgerOptions& options) {
  LinesShown lines;
  for (const trace::LedgerLine& line : ledger.lines) {
    if (options.step.empty() || ledger.steps[line.step] == options.step) lines.push_back(&line);
  }
  const std::size_t kept = std::min(options.tail.value_or(lines.size()), lines.size());
  lines.erase(lines.begin(), lines.end() - static_cast<std::ptrdiff_t>(kept));
  return lines;
}

void show(const trace::Ledger& ledger, const LinesShown& lines,
          const diff::LedgerSummary& summary) {
  if (!lines.empty()) put(table_heading());
  for (const trace::LedgerLine* line : lines) put(line_text(ledger, *line));
  put((lines.empty() ? "" : "\n") + summary_text(summary));
}

void show_json(const LedgerOptions& options, const storage::FoundLedger& found,
               const LinesShown& lines, const diff::LedgerSummary& summary) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const trace::LedgerLine* line : lines) list.push_back(line_json(found.ledger, *line));
  put(json_text({{"file", options.path},
                 {"run", text_of(found.ledger.run)},
                 {"closed", found.is_closed},
                 {"torn_bytes", found.torn_bytes},
                 {"steps", found.ledger.steps},
                 {"summary", summary_json(summary)},
                 {"lines", list}}));
}

int run(const LedgerOptions& options) {
  const storage::FoundLedger found = open_ledger(
      options.path, options.partial ? storage::OnDamage::kRecover : storage::OnDamage::kRefuse);
  const trace::Ledger& ledger = found.ledger;
  if (!options.step.empty() &&
      std::ranges::find(ledger.steps, options.step) == ledger.steps.end()) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("no step of {} is called `{}`", options.path, options.step));
  }
  const diff::LedgerSummary summary = diff::summarize(ledger, options.step);
  const LinesShown lines = lines_of(ledger, options);
  if (options.json) {
    show_json(options, found, lines, summary);
  } else {
    show(ledger, lines, summary);
  }
  return kGood;
}

}  // namespace

void add_ledger(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand("ledger", "Show what each call of a training did");
  auto options = std::make_shared<LedgerOptions>();
  command->add_option("FILE", options->path, "A ledger, or the trace beside it")->required();
  command->add_option("--step", options->step, "Only the step of this name");
  command->add_option("--tail", options->tail,
                      "Only so many lines, the last; the summary is of all");
  command->add_flag("--json", options->json, "Print JSON");
  command->add_flag("--partial", options->partial, "Show what is left of a damaged file");
  command->footer(
      "Examples:\n"
      "  steptape ledger run.tape.ledger --tail 20\n"
      "  steptape ledger run.tape --json | jq '.lines[] | select(.outcome == \"eager\")'\n"
      "Exit status: 0 good, 2 trouble: a file that is missing or damaged.");
  command->callback([options, &exit_code] { exit_code = run(*options); });
}

}  // namespace steptape::tools
