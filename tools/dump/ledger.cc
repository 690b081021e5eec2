#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>

#include "steptape/error.h"
#include "tools/cli/commands.h"
#include "tools/cli/json.h"
#include "tools/cli/output.h"
#include "tools/cli/rank_files.h"
#include "tools/dump/ledger_view.h"

namespace steptape::tools {
namespace {

using LinesShown = std::vector<const trace::LedgerLine*>;

struct LedgerOptions {
  std::string path;
  std::vector<std::string> ranks;  ///< ledgers of several processes, in place of `path`
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
  const auto json_of_line = [&found](const trace::LedgerLine* line) {
    return line_json(found.ledger, *line);
  };
  put(json_text({{"file", options.path},
                 {"run", text_of(found.ledger.run)},
                 {"closed", found.is_closed},
                 {"torn_bytes", found.torn_bytes},
                 {"steps", found.ledger.steps},
                 {"summary", summary_json(summary)},
                 {"lines", each(lines, json_of_line)}}));
}

/// Which processes of one training left the same in each call.
class RankTable {
 public:
  explicit RankTable(const LedgerOptions& options)
      : options_(options), files_(rank_files(options.ranks)) {
    const storage::OnDamage on_damage =
        options.partial ? storage::OnDamage::kRecover : storage::OnDamage::kRefuse;
    for (const RankFile& file : files_)
      ledgers_.push_back(open_ledger(file.path, on_damage).ledger);
    for (const trace::Ledger& ledger : ledgers_) {
      for (const std::string& step : ledger.steps) {
        const bool is_wanted = options.step.empty() || step == options.step;
        if (is_wanted && std::ranges::find(steps_, step) == steps_.end()) steps_.push_back(step);
      }
    }
    if (steps_.empty() && !options.step.empty()) {
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("no step of these ranks is called `{}`", options.step));
    }
  }

  void put() const {
    Json steps = Json::array();
    std::string text;
    for (const std::string& step : steps_) {
      std::vector<const trace::Ledger*> ledgers;
      for (const trace::Ledger& ledger : ledgers_) ledgers.push_back(&ledger);
      const std::vector<diff::RankCall> calls = diff::calls_of_ranks(ledgers, step);
      if (options_.json) {
        steps.push_back(json_of(step, calls));
      } else {
        text += fmt::format("{}{}\n{}", text.empty() ? "" : "\n",
                            toned(Tone::kHeading, "step " + shown(step)), text_of(calls));
      }
    }
    if (!options_.json) return tools::put(text);
    tools::put(json_text({{"ranks", ranks_json(files_)}, {"steps", steps}}));
  }

 private:
  using Calls = std::vector<diff::RankCall>;

  static constexpr std::size_t kWidest = 14;

  std::span<const diff::RankCall> shown_of(const Calls& calls) const {
    return std::span(calls).last(std::min(options_.tail.value_or(calls.size()), calls.size()));
  }

  /// "equal", "0 1 2 | 3", "8 kinds"; "-" where no digests were taken.
  std::string words_of(const diff::RankCall& call, diff::CallPart part) const {
    const std::vector<std::size_t>& groups = call.of(part);
    if (std::ranges::count(groups, diff::RankCall::kNone) + 1 >= std::ssize(groups)) return "-";
    if (!call.differs(part)) return "equal";
    const std::string words = words_of_groups(groups, files_);
    const std::set<std::size_t> kinds(groups.begin(), groups.end());
    return words.size() <= kWidest ? words : fmt::format("{} kinds", kinds.size());
  }

  /// "replayed", "2 replayed, 1 trial".
  static std::string outcomes_of(const diff::RankCall& call) {
    std::map<trace::CallOutcome, std::size_t> counts;
    for (const trace::LedgerLine* line : call.lines) {
      if (line != nullptr) ++counts[line->outcome];
    }
    std::string words;
    for (const auto& [outcome, count] : counts) {
      words += words.empty() ? "" : ", ";
      words += counts.size() == 1 ? std::string(name_of(outcome))
                                  : fmt::format("{} {}", count, name_of(outcome));
    }
    return words;
  }

  std::string text_of(const Calls& calls) const {
    std::string text;
    const auto row = [&text](const auto& call, const auto& words_of_part, const auto& outcomes) {
      text += fmt::format("{:>9}", call);
      for (const diff::CallPart part : diff::call_parts()) {
        text += fmt::format("  {:<{}}", words_of_part(part), kWidest);
      }
      text += fmt::format("  {}\n", outcomes);
    };
    const auto shown_calls = shown_of(calls);
    if (!shown_calls.empty())
      row(
          "call", [](auto part) { return name_of(part); }, "outcome");
    for (const diff::RankCall& call : shown_calls) {
      row(
          call.call, [&](auto part) { return words_of(call, part); }, outcomes_of(call));
    }
    text += fmt::format("{}{} on {} ranks\n", text.empty() ? "" : "\n",
                        count_of(calls.size(), "call"), files_.size());
    for (const diff::CallPart part : diff::call_parts()) text += summary_of(calls, part);
    return text;
  }

  std::string summary_of(const Calls& calls, diff::CallPart part) const {
    const auto differs = [part](const diff::RankCall& call) { return call.differs(part); };
    const auto first = std::ranges::find_if(calls, differs);
    const bool has_digests = std::ranges::any_of(
        calls, [&](const diff::RankCall& call) { return words_of(call, part) != "-"; });
    if (!has_digests) return {};
    if (first == calls.end()) return fmt::format("  {:<10}  equal\n", name_of(part));
    return fmt::format(
        "  {:<10}  differ in {}, first in call {}: {}\n", name_of(part),
        count_of(static_cast<std::uint64_t>(std::ranges::count_if(calls, differs)), "call"),
        first->call, words_of_groups(first->of(part), files_));
  }

  Json json_of(const std::string& step, const Calls& calls) const {
    const auto outcome_json = [](const trace::LedgerLine* line) {
      return line == nullptr ? Json() : Json(name_of(line->outcome));
    };
    const auto group_json = [](std::size_t group) {
      return number_or_null(group, diff::RankCall::kNone);
    };
    const auto call_json = [&](const diff::RankCall& call) {
      Json json = {{"call", call.call}, {"outcomes", each(call.lines, outcome_json)}};
      for (const diff::CallPart part : diff::call_parts()) {
        json[std::string(name_of(part))] = each(call.of(part), group_json);
      }
      return json;
    };
    return {{"name", step}, {"calls", each(shown_of(calls), call_json)}};
  }

  const LedgerOptions& options_;
  const std::vector<RankFile> files_;
  std::vector<trace::Ledger> ledgers_;
  std::vector<std::string> steps_;
};

int run(const LedgerOptions& options) {
  if (!options.ranks.empty()) {
    RankTable(options).put();
    return kGood;
  }
  if (options.path.empty()) throw CLI::RequiredError("FILE");
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
  auto* file = command->add_option("FILE", options->path, "A ledger, or the trace beside it");
  command
      ->add_option("--ranks", options->ranks,
                   "The ledgers of the processes of one training: which of them left the same?")
      ->expected(1, -1)
      ->excludes(file);
  command->add_option("--step", options->step, "Only the step of this name");
  command->add_option("--tail", options->tail,
                      "Only so many lines, the last; the summary is of all");
  command->add_flag("--json", options->json, "Print JSON");
  command->add_flag("--partial", options->partial, "Show what is left of a damaged file");
  command->footer(
      "Examples:\n"
      "  steptape ledger run.tape.ledger --tail 20\n"
      "  steptape ledger run.tape --json | jq '.lines[] | select(.outcome == \"eager\")'\n"
      "  steptape ledger --ranks run.rank*.tape --tail 20\n"
      "Exit status: 0 good, 2 trouble: a file that is missing or damaged.");
  command->callback([options, &exit_code] { exit_code = run(*options); });
}

}  // namespace steptape::tools
