#include "trace/diff.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>

#include "steptape/error.h"
#include "tools/commands.h"
#include "tools/diff_json.h"
#include "tools/diff_policy.h"
#include "tools/diff_text.h"
#include "tools/diff_verdict.h"
#include "tools/exit_code.h"
#include "tools/folder_pairs.h"
#include "tools/info_json.h"
#include "tools/open_ledger.h"
#include "tools/open_trace.h"
#include "tools/output.h"
#include "tools/pager.h"
#include "tools/progress.h"

namespace steptape::tools {
namespace {

using Json = nlohmann::ordered_json;

/// Of the JSON; it grows when a key changes its meaning or goes.
constexpr int kJsonVersion = 1;

struct Options {
  std::string a, b;
  std::string step;
  std::vector<std::string> ignore, fail_on;
  std::string color = "auto";
  bool stat = false;
  bool all = false;
  bool json = false;
  bool no_pager = false;
};

Detail detail_of(const Options& options) {
  if (options.stat) return Detail::kCounts;
  return options.all ? Detail::kAll : Detail::kSome;
}

Colours colours_of(const std::string& word) {
  if (word == "always") return Colours::kAlways;
  return word == "never" ? Colours::kNever : Colours::kAuto;
}

/// Both traces, and what came of their comparison.
struct Comparison {
  trace::Trace a, b;
  trace::Diff diff;
};

bool has_ledger(const std::filesystem::path& trace) {
  return std::filesystem::exists(storage::ledger_beside(trace));
}

trace::Diff compare_traces(const trace::Trace& a, const trace::Trace& b, const std::string& step) {
  const Progress progress("comparing the traces");
  return trace::diff(a, b, step);
}

/// Of two ledgers, or of two traces and, where both have them, the ledgers beside them.
Comparison compare(const std::filesystem::path& a, const std::filesystem::path& b,
                   const std::string& step, const DiffPolicy& policy) {
  Comparison out;
  const bool are_ledgers = storage::is_ledger(a) && storage::is_ledger(b);
  if (!are_ledgers) {
    out.a = open_trace(a, Parts::kAll);
    out.b = open_trace(b, Parts::kAll);
  }
  out.diff = compare_traces(out.a, out.b, step);
  const bool tells_ledgers =
      policy.tells(trace::Section::kLedger) || policy.tells(trace::Section::kTime);
  if (are_ledgers || (tells_ledgers && has_ledger(a) && has_ledger(b))) {
    out.diff.ledger = trace::diff(open_ledger(a).ledger, open_ledger(b).ledger, step);
  }
  const bool has_steps = out.diff.ledger && !out.diff.ledger->steps.empty();
  if (!step.empty() && out.a.find_step(step) == nullptr && out.b.find_step(step) == nullptr &&
      !has_steps) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("no step of {} or {} is called `{}`", a.string(), b.string(), step));
  }
  return out;
}

int diff_files(const Options& options, const DiffPolicy& policy) {
  const Comparison found = compare(options.a, options.b, options.step, policy);
  if (options.json) {
    Json json = {{"version", kJsonVersion}, {"a", options.a}, {"b", options.b}};
    json.update(diff_json(found.diff, found.a, found.b, policy));
    put(json_text(json));
  } else {
    const std::string text = diff_text(found.diff, found.a, found.b, policy, detail_of(options));
    put_paged(verdict_of(found.diff, policy) + "\n" + (text.empty() ? "" : "\n" + text),
              options.no_pager ? Paging::kNever : Paging::kOnTerminal);
  }
  return policy.differs(found.diff) ? kDiffers : kGood;
}

/// The traces of two folders, one after the other. One that cannot be read is trouble, and the
/// others are still compared.
class FolderDiff {
 public:
  FolderDiff(const Options& options, const DiffPolicy& policy)
      : options_(options), policy_(policy) {}

  int run() {
    const FolderPairs pairs = pair_folders(options_.a, options_.b);
    if (pairs.both.empty()) {
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("no trace, *.tape, is in both {} and {}", options_.a, options_.b));
    }
    for (const std::string& name : pairs.both) compare_named(name);
    if (!pairs.only_in_a.empty() || !pairs.only_in_b.empty()) raise(kDiffers);
    if (options_.json) {
      put(json_text({{"version", kJsonVersion},
                     {"a", options_.a},
                     {"b", options_.b},
                     {"traces", traces_},
                     {"only_in_a", pairs.only_in_a},
                     {"only_in_b", pairs.only_in_b}}));
    } else {
      put_lonely(pairs.only_in_a, options_.a);
      put_lonely(pairs.only_in_b, options_.b);
      put_paged(text_, options_.no_pager ? Paging::kNever : Paging::kOnTerminal);
    }
    return exit_code_;
  }

 private:
  void raise(int code) { exit_code_ = std::max(exit_code_, code); }

  void compare_named(const std::string& name) try {
    const Comparison found =
        compare(std::filesystem::path(options_.a) / name, std::filesystem::path(options_.b) / name,
                options_.step, policy_);
    if (policy_.differs(found.diff)) raise(kDiffers);
    if (options_.json) {
      Json json = {{"name", name}};
      json.update(diff_json(found.diff, found.a, found.b, policy_));
      traces_.push_back(std::move(json));
      return;
    }
    const std::string text = diff_text(found.diff, found.a, found.b, policy_, detail_of(options_));
    text_ += fmt::format("{}: {}\n{}{}", toned(Tone::kHeading, shown(name)),
                         verdict_of(found.diff, policy_), text, text.empty() ? "" : "\n");
  } catch (const Error& error) {
    complain(error);
    raise(kTrouble);
  }

  void put_lonely(const std::vector<std::string>& names, const std::string& folder) {
    for (const std::string& name : names) {
      text_ += fmt::format("{}: {} only in {}\n", toned(Tone::kHeading, shown(name)),
                           toned(Tone::kBad, "differ:"), folder);
    }
  }

  const Options& options_;
  const DiffPolicy& policy_;
  int exit_code_ = kGood;
  std::string text_;
  Json traces_ = Json::array();
};

int run(const Options& options) {
  const DiffPolicy policy(options.ignore, options.fail_on);
  set_colours(colours_of(options.color));
  const bool is_folder_a = std::filesystem::is_directory(options.a);
  if (is_folder_a != std::filesystem::is_directory(options.b)) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{} and {} are a folder and a file: give two of one kind", options.a,
                            options.b));
  }
  return is_folder_a ? FolderDiff(options, policy).run() : diff_files(options, policy);
}

}  // namespace

void add_diff(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand("diff", "Say in what two traces differ, op by op");
  auto options = std::make_shared<Options>();
  command->add_option("A", options->a, "A trace, a folder of traces, or a ledger")->required();
  command->add_option("B", options->b, "Another")->required();
  command->add_option("--step", options->step, "Only the step of this name");
  command->add_option("--ignore", options->ignore, "Sections not to tell")->delimiter(',');
  command
      ->add_option("--fail-on", options->fail_on,
                   "Sections that make traces differ; without it, all but place and time")
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
      "Sections: environment, ledger, structure, formulas, optimizer, modules, guards,\n"
      "constants, refusals, place (lines of the program), time (of calls).\n"
      "Examples:\n"
      "  steptape diff monday.tape tuesday.tape\n"
      "  steptape diff a.tape b.tape --fail-on structure,optimizer --ignore environment\n"
      "  steptape diff runA/ runB/ --stat\n"
      "  steptape diff a.tape b.tape --json | jq '.steps[].recordings[].edits[]'\n"
      "Exit status: 0 equal, 1 they differ, 2 trouble: a file that is missing or damaged.");
  command->callback([options, &exit_code] { exit_code = run(*options); });
}

}  // namespace steptape::tools
