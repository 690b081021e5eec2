#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "tools/cli/commands.h"
#include "tools/cli/json.h"
#include "tools/cli/output.h"
#include "tools/cli/trace_choice.h"
#include "tools/dump/dumps.h"
#include "tools/dump/info_json.h"
#include "tools/dump/optimizer_view.h"
#include "trace/compare/guard_differences.h"
#include "trace/compare/guard_list.h"

namespace steptape::tools {
namespace {

struct DumpOptions : FileOptions {
  bool bytes = false;
  bool guards = false;
  bool optimizer = false;
  bool modules = false;
};

/// What was asked for instead of the whole trace; null: nothing.
std::unique_ptr<RecordingView> view_of(const DumpOptions& options) {
  if (options.guards) return std::make_unique<GuardsView>();
  if (options.optimizer) return std::make_unique<OptimizerView>();
  if (options.modules) return std::make_unique<ModulesView>();
  return nullptr;
}

void dump(const DumpOptions& options) {
  const trace::Trace trace = options.open();
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

namespace {

/// So many differences of two variants are put into words.
constexpr std::size_t kDifferences = 12;

/// The first recording of a step that plans are made from, if it comes before `position`.
const trace::Recording* first_variant(const trace::Step& step, std::size_t position) {
  for (std::size_t i = 0; i < position; ++i) {
    if (step.recordings[i].status != trace::Status::kWarmUp) return &step.recordings[i];
  }
  return nullptr;
}

std::string words_of(const trace::Guard& guard) {
  std::string words = shown(guard.path) + ": " + shown(guard.expected);
  if (!guard.also_holds.empty()) words += " (or " + guard.also_holds + ")";
  for (const std::string& alias : guard.aliases) words += ", also " + shown(alias);
  return words;
}

Json guard_json(const trace::Guard& guard) {
  return {{"kind", name_of(guard.kind)},
          {"path", guard.path},
          {"expected", guard.expected},
          {"also_holds", guard.also_holds.empty() ? Json() : Json(guard.also_holds)},
          {"aliases", guard.aliases}};
}

Json differences_json(const trace::Step& step, std::size_t position) {
  const trace::Recording* first = first_variant(step, position);
  if (first == nullptr) return nullptr;
  const auto difference_json = [](const trace::GuardDifference& difference) {
    Json json = {{"kind", name_of(difference.kind)}};
    json.update(finding_json(difference));
    return json;
  };
  return {{"recording", first - step.recordings.data()},
          {"differences",
           each(trace::guard_differences(*first, step.recordings[position]), difference_json)}};
}

}  // namespace

std::string GuardsView::text(const trace::Step& step, std::size_t position) const {
  const trace::Recording& recording = step.recordings[position];
  if (recording.status == trace::Status::kWarmUp) return "";
  Lines out("    ");
  if (const trace::Recording* first = first_variant(step, position)) {
    out.line("differs from recording {} in: {}", first - step.recordings.data(),
             shown(text_of(trace::guard_differences(*first, recording), kDifferences)));
  }
  const std::vector<trace::Guard> guards = trace::guards_of(recording);
  out.line("{}", count_of(guards.size(), "guard"));
  for (const GuardKind kind : guard_kinds()) {
    const auto count = std::ranges::count(guards, kind, &trace::Guard::kind);
    if (count == 0) continue;
    out.line("{}  {}", toned(Tone::kHeading, name_of(kind)), count);
    for (const trace::Guard& guard : guards) {
      if (guard.kind == kind) out.line("  {}", words_of(guard));
    }
  }
  return out.take();
}

Json GuardsView::json(const trace::Step& step, std::size_t position) const {
  const trace::Recording& recording = step.recordings[position];
  if (recording.status == trace::Status::kWarmUp) return {{"guards", Json::array()}};
  return {{"differs_from", differences_json(step, position)},
          {"guards", each(trace::guards_of(recording), guard_json)}};
}

}  // namespace steptape::tools
