#include <fmt/format.h>

#include <memory>

#include "tools/cli/commands.h"
#include "tools/cli/exit_code.h"
#include "tools/cli/output.h"
#include "tools/cli/trace_choice.h"
#include "tools/dump/dumps.h"
#include "tools/dump/info_json.h"
#include "tools/dump/optimizer_view.h"

namespace steptape::tools {
namespace {

struct DumpOptions {
  std::string path;
  std::string step;
  bool bytes = false;
  bool guards = false;
  bool optimizer = false;
  bool modules = false;
  bool json = false;
  bool partial = false;
};

/// What was asked for instead of the whole trace; null: nothing.
std::unique_ptr<RecordingView> view_of(const DumpOptions& options) {
  if (options.guards) return std::make_unique<GuardsView>();
  if (options.optimizer) return std::make_unique<OptimizerView>();
  if (options.modules) return std::make_unique<ModulesView>();
  return nullptr;
}

void dump(const DumpOptions& options) {
  trace::Trace trace = open_trace(options.path, options.partial ? Parts::kWhatIsLeft : Parts::kAll);
  if (!options.step.empty()) trace = with_step_alone(std::move(trace), options.step);
  if (const auto view = view_of(options)) {
    return put(options.json ? json_text(view_json(trace, *view)) : view_text(trace, *view));
  }
  const auto contents = options.bytes ? trace::Contents::kBytes : trace::Contents::kDigests;
  put(options.json ? json_text(dump_json(trace, contents)) : trace::print(trace, contents));
}

}  // namespace

void add_dump(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand("dump", "Print all of a trace as text, an op a line");
  auto options = std::make_shared<DumpOptions>();
  command->add_option("FILE", options->path, "A trace")->required();
  command->add_option("--step", options->step, "Only the step of this name");
  // at most one of these
  CLI::Option_group* what = command->add_option_group("What to print");
  what->add_flag("--bytes", options->bytes, "Print tensor bytes, not their digests");
  what->add_flag("--guards", options->guards, "Print under which conditions plans may run");
  what->add_flag("--optimizer", options->optimizer,
                 "Print groups, hyperparameters to the bit, and state");
  what->add_flag("--modules", options->modules, "Print the tree of modules and their ops");
  what->require_option(0, 1);
  command->add_flag("--json", options->json, "Print JSON");
  command->add_flag("--partial", options->partial, "Print what is left of a damaged file");
  command->footer(
      "Examples:\n"
      "  steptape dump run.tape --step train | grep ' op '\n"
      "  steptape dump run.tape --step train --guards | grep 'inputs\\[0\\]'\n"
      "  steptape dump run.tape --modules\n"
      "  diff <(steptape dump a.tape) <(steptape dump b.tape)");
  command->callback([options, &exit_code] {
    dump(*options);
    exit_code = kGood;
  });
}

}  // namespace steptape::tools
