#include "diff/diff.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <memory>

#include "steptape/error.h"
#include "tools/cli/commands.h"
#include "tools/cli/json.h"
#include "tools/cli/output.h"
#include "tools/diff/comparison.h"
#include "tools/diff/diff_json.h"
#include "tools/diff/diff_text.h"
#include "tools/diff/diff_verdict.h"
#include "tools/diff/folder_pairs.h"
#include "tools/diff/numerics.h"
#include "tools/diff/ranks.h"

namespace steptape::tools {
namespace {

/// Of the JSON; it grows when a key changes its meaning or goes.
constexpr int kDiffVersion = 1;

struct DiffOptions : ComparisonOptions {
  RankOptions ranks;
  std::vector<std::string> ignore, fail_on;
  std::string color = "auto";
  bool stat = false;
  bool all = false;
  bool json = false;
  bool no_pager = false;
};

Detail detail_of(const DiffOptions& options) {
  if (options.stat) return Detail::kCounts;
  return options.all ? Detail::kAll : Detail::kSome;
}

Colours colours_of(const std::string& word) {
  if (word == "always") return Colours::kAlways;
  return word == "never" ? Colours::kNever : Colours::kAuto;
}

Ledgers ledgers_of(const DiffPolicy& policy) {
  const bool are_told = policy.tells(diff::Section::kLedger) || policy.tells(diff::Section::kTime);
  return are_told ? Ledgers::kBeside : Ledgers::kIgnored;
}

/// What was not compared, for people.
std::string note_of(const Comparison& found, const DiffPolicy& policy) {
  return policy.tells(diff::Section::kNumerics) ? note_of_numerics(found.diff) : "";
}

int exit_code_of(const Comparison& found, const DiffPolicy& policy) {
  if (policy.differs(found.diff)) return kDiffers;
  const std::vector<std::string> unanswered = policy.unanswered(found.diff);
  if (!unanswered.empty()) {
    complain(fmt::format("--fail-on asks for {}, which the traces do not hold on both sides",
                         fmt::join(unanswered, " and ")));
    return kTrouble;
  }
  return found.has_torn_ledger ? kTrouble : kGood;
}

int diff_files(const DiffOptions& options, const DiffPolicy& policy) {
  const Comparison found =
      compare(options.a, options.b, options.step,
              {options.controls.begin(), options.controls.end()}, ledgers_of(policy));
  if (options.json) {
    Json json = {{"version", kDiffVersion}, {"a", options.a}, {"b", options.b}};
    json.update(diff_json(found.diff, found.a, found.b, policy));
    put(json_text(json));
  } else {
    const std::string text = diff_text(found.diff, found.a, found.b, policy, detail_of(options));
    const std::string note = note_of(found, policy);
    put_paged(verdict_of(found, policy) + "\n" + (text.empty() ? "" : "\n" + text) +
                  (note.empty() ? "" : "\n" + note),
              options.no_pager ? Paging::kNever : Paging::kOnTerminal);
  }
  return exit_code_of(found, policy);
}

/// The traces of two folders, one after the other.
class FolderDiff {
 public:
  FolderDiff(const DiffOptions& options, const DiffPolicy& policy)
      : options_(options), policy_(policy) {}

  int run() {
    const FolderPairs pairs = pair_folders(options_.a, options_.b);
    const int exit_code =
        pairs.visit([this](const NamePair& names) { return compare_named(names); });
    if (options_.json) {
      put(json_text(pairs.json(kDiffVersion, traces_)));
    } else {
      put_paged(text_ + pairs.lonely_text() + (note_.empty() ? "" : "\n" + note_),
                options_.no_pager ? Paging::kNever : Paging::kOnTerminal);
    }
    return exit_code;
  }

 private:
  int compare_named(const NamePair& names) {
    const Comparison found = compare(std::filesystem::path(options_.a) / names.a,
                                     std::filesystem::path(options_.b) / names.b, options_.step,
                                     files_named(names.a, options_.controls), ledgers_of(policy_));
    if (options_.json) {
      Json json = {{"name", names.a}, {"name_in_b", names.b}};
      json.update(diff_json(found.diff, found.a, found.b, policy_));
      traces_.push_back(std::move(json));
    } else {
      const std::string text =
          diff_text(found.diff, found.a, found.b, policy_, detail_of(options_));
      text_ += fmt::format("{}: {}\n{}{}", toned(Tone::kHeading, shown(names.words())),
                           verdict_of(found, policy_), text, text.empty() ? "" : "\n");
      if (note_.empty()) note_ = note_of(found, policy_);
    }
    return exit_code_of(found, policy_);
  }

  const DiffOptions& options_;
  const DiffPolicy& policy_;
  std::string text_;
  std::string note_;  ///< the first
  Json traces_ = Json::array();
};

int run(const DiffOptions& options) {
  set_colours(colours_of(options.color));
  if (!options.ranks.paths.empty()) {
    RankOptions ranks = options.ranks;
    ranks.step = options.step;
    ranks.all = options.all;
    ranks.json = options.json;
    return diff_ranks(ranks);
  }
  if (options.b.empty()) throw CLI::RequiredError(options.a.empty() ? "A" : "B");
  const DiffPolicy policy(options.ignore, options.fail_on);
  const bool are_all_folders = are_folders(options.a, options.b, options.controls);
  return are_all_folders ? FolderDiff(options, policy).run() : diff_files(options, policy);
}

}  // namespace

void add_diff(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand("diff", "Say in what two traces differ, op by op");
  auto options = std::make_shared<DiffOptions>();
  add_options(*command, *options);
  for (const char* name : {"A", "B"}) command->get_option(name)->required(false);
  auto* ranks = command
                    ->add_option("--ranks", options->ranks.paths,
                                 "Compare the traces or ledgers of the processes of one training: "
                                 "where do they part in "
                                 "what they are to have alike, parameters and optimizer state?")
                    ->expected(1, -1);
  for (const char* name : {"A", "B", "--control"}) ranks->excludes(command->get_option(name));
  command
      ->add_flag("--buffers", options->ranks.with_buffers,
                 "With --ranks: buffers of modules are to be alike, too")
      ->needs(ranks);
  command->add_option("--ignore", options->ignore, "Sections not to tell")->delimiter(',');
  command
      ->add_option("--fail-on", options->fail_on,
                   "Sections that make traces differ; without it, all but memory, place and time")
      ->delimiter(',');
  auto* detail = command->add_option_group("How much to print");
  detail->add_flag("--stat", options->stat, "Print counts by module");
  detail->add_flag("--all", options->all, "Print every edit, not the first of each module");
  detail->add_flag("--json", options->json, "Print JSON, with every edit");
  detail->require_option(0, 1);
  command->add_option("--color", options->color, "auto, always or never")
      ->check(CLI::IsMember({"auto", "always", "never"}));
  command->add_flag("--no-pager", options->no_pager, "Do not show it through $PAGER");
  command->footer(
      "Sections: environment, ledger, numerics (what ops left, where they have digests),\n"
      "structure, formulas, optimizer, modules, guards, constants, refusals, memory, place\n"
      "(lines of the program), time (of calls, and of the ops of each module).\n"
      "Examples:\n"
      "  steptape diff monday.tape tuesday.tape\n"
      "  steptape diff a.tape b.tape --fail-on structure,optimizer --ignore environment\n"
      "  steptape diff a.tape b.tape --control a_again.tape --fail-on ledger,numerics\n"
      "  steptape diff runA/ runB/ --stat\n"
      "  steptape diff --ranks run.rank*.tape\n"
      "  steptape diff a.tape b.tape --json | jq '.steps[].recordings[].edits[]'\n"
      "Exit status: 0 equal, 1 they differ, 2 trouble: a file that is missing or damaged, or a "
      "section "
      "that\n--fail-on names and that could not be compared.");
  command->callback([options, &exit_code] { exit_code = run(*options); });
}

}  // namespace steptape::tools
