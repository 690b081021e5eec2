#include <fmt/format.h>

#include <memory>

#include "diff/op_stream.h"
#include "tools/cli/commands.h"
#include "tools/cli/json.h"
#include "tools/cli/output.h"
#include "tools/cli/progress.h"
#include "tools/cli/trace_choice.h"
#include "tools/dump/dumps.h"
#include "tools/dump/summary.h"
#include "tools/export/exports.h"

namespace steptape::tools {
namespace {

struct ExportOptions : RecordingOptions {
  bool csv = false;
  bool dot = false;
  bool json = false;
  bool perfetto = false;
};

/// The chosen recording as `steptape dump --json` shows a trace of it alone.
std::string export_json(const trace::Trace& trace, const ChosenRecording& chosen) {
  trace::Trace alone = {trace.producer, trace.run, trace.environment, {}, {}};
  alone.steps.push_back({chosen.step->name, chosen.step->place, {chosen.recording()}});
  return json_text(dump_json(alone, trace::Contents::kDigests));
}

std::string exported(const ExportOptions& options) {
  const trace::Trace trace = open_trace(options.path, Parts::kAll);
  const ChosenRecording chosen = choose_recording(trace, options.step, options.recording);
  const Progress progress("exporting " + chosen.step->name);
  if (options.csv) return export_csv(chosen);
  if (options.dot) return export_dot(chosen);
  if (options.json) return export_json(trace, chosen);
  if (chosen.recording().op_ns.empty()) {
    complain("the trace holds no times: each op is drawn as one microsecond");
  }
  return export_perfetto(chosen);
}

}  // namespace

void add_export(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand("export", "Write a recording in a format of other tools");
  auto options = std::make_shared<ExportOptions>();
  command->add_option("FILE", options->path, "A trace")->required();
  CLI::Option_group* format = command->add_option_group("Format");
  format->add_flag("--csv", options->csv, "A line for each op");
  format->add_flag("--dot", options->dot, "The graph of ops, by module, for Graphviz");
  format->add_flag("--json", options->json, "Everything but tensor bytes");
  format->add_flag("--perfetto", options->perfetto, "A timeline for ui.perfetto.dev");
  format->require_option(1);
  add_options(*command, *options);
  command->footer(
      "Examples:\n"
      "  steptape export run.tape --csv | head\n"
      "  steptape export run.tape --dot | dot -Tsvg -o run.svg\n"
      "  steptape export run.tape --step train --perfetto -o run.pftrace");
  command->callback([options, &exit_code] {
    put_result(exported(*options), options->out);
    exit_code = kGood;
  });
}

namespace {

std::string cell(std::string_view text) {
  std::string escaped = shown(text);
  constexpr std::string_view kFormulaStarts = "=+-@";
  if (!escaped.empty() && kFormulaStarts.find(escaped.front()) != std::string_view::npos) {
    escaped.insert(escaped.begin(), '\'');
  }
  std::string quoted = "\"";
  for (const char c : escaped) quoted += c == '"' ? "\"\"" : std::string(1, c);
  return quoted + '"';
}

}  // namespace

std::string export_csv(const ChosenRecording& chosen) {
  const trace::Recording& recording = chosen.recording();
  const diff::OpStream stream(recording);
  const std::vector<StepPart> parts = parts_of(recording);
  std::string csv = "op,part,operator,module_call,sequence,call,where\r\n";
  for (trace::Index i = 0; i < recording.ops.size(); ++i) {
    const trace::Op& op = recording.ops[i];
    csv += fmt::format("{},{},{},{},{},{},{}\r\n", i, name_of(parts[i]),
                       cell(recording.operator_of(op).full_name()), cell(stream.call_of(op)),
                       op.sequence < 0 ? "" : std::to_string(op.sequence), cell(stream.op(i).text),
                       cell(recording.scope_of(op)));
  }
  return csv;
}

}  // namespace steptape::tools
