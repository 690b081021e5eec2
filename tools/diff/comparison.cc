#include "tools/diff/comparison.h"

#include <fmt/format.h>

#include "steptape/error.h"
#include "tools/cli/progress.h"
#include "tools/cli/trace_choice.h"
#include "tools/dump/ledger_view.h"

namespace steptape::tools {
namespace {

bool has_ledger(const std::filesystem::path& path) {
  return storage::is_ledger(path) || std::filesystem::exists(storage::ledger_beside(path));
}

/// Whether both are ledgers.
bool are_both_ledgers(const std::filesystem::path& a, const std::filesystem::path& b) {
  const bool is_ledger_a = storage::is_ledger(a);
  if (is_ledger_a == storage::is_ledger(b)) return is_ledger_a;
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("{} is a ledger and {} is none: give two ledgers or two traces",
                          (is_ledger_a ? a : b).string(), (is_ledger_a ? b : a).string()));
}

diff::Diff compare_traces(const trace::Trace& a, const trace::Trace& b, const std::string& step,
                          const std::vector<trace::Trace>& other_runs) {
  const Progress progress("comparing the traces");
  return diff::compare(a, b, step, other_runs);
}

}  // namespace

void add_options(CLI::App& command, ComparisonOptions& options) {
  command.add_option("A", options.a, "A trace, a folder of traces, or a ledger")->required();
  command.add_option("B", options.b, "Another")->required();
  command.add_option("--step", options.step, "Only the step of this name");
  add_control_option(command, options.controls);
}

CLI::Option* add_control_option(CLI::App& command, std::vector<std::string>& controls) {
  return command
      .add_option("--control", controls,
                  "Another run of A's program: what differs between the two is noise")
      ->allow_extra_args(false);
}

Comparison compare(const std::filesystem::path& a, const std::filesystem::path& b,
                   const std::string& step, const std::vector<std::filesystem::path>& controls,
                   Ledgers ledgers) {
  Comparison out;
  const bool are_ledgers = are_both_ledgers(a, b);
  std::vector<trace::Trace> other_runs;
  if (!are_ledgers) {
    out.a = open_trace(a, Parts::kAll);
    out.b = open_trace(b, Parts::kAll);
    for (const auto& path : controls) {
      if (!storage::is_ledger(path)) other_runs.push_back(open_trace(path, Parts::kAll));
    }
  }
  out.diff = compare_traces(out.a, out.b, step, other_runs);
  const bool has_a = ledgers == Ledgers::kBeside && has_ledger(a);
  const bool has_b = ledgers == Ledgers::kBeside && has_ledger(b);
  if (are_ledgers || (has_a && has_b)) {
    std::vector<trace::Ledger> other_ledgers;
    for (const auto& path : controls) {
      if (has_ledger(path)) other_ledgers.push_back(open_ledger(path).ledger);
    }
    const storage::FoundLedger of_a = open_ledger(a);
    const storage::FoundLedger of_b = open_ledger(b);
    out.has_torn_ledger = of_a.torn_bytes > 0 || of_b.torn_bytes > 0;
    out.diff.ledger = diff::compare(of_a.ledger, of_b.ledger, step, other_ledgers);
  } else if (has_a || has_b) {
    out.diff.ledger_only_in = has_a ? "a" : "b";
  }
  const bool has_steps = out.diff.ledger && !out.diff.ledger->steps.empty();
  if (!step.empty() && out.a.find_step(step) == nullptr && out.b.find_step(step) == nullptr &&
      !has_steps) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("no step of {} or {} is called `{}`", a.string(), b.string(), step));
  }
  return out;
}

}  // namespace steptape::tools
