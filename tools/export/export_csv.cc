#include <fmt/format.h>

#include "diff/op_stream.h"
#include "tools/cli/output.h"
#include "tools/dump/step_part.h"
#include "tools/export/exports.h"

namespace steptape::tools {
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
                       cell(op.scope == trace::kNone ? "" : recording.scopes[op.scope]));
  }
  return csv;
}

}  // namespace steptape::tools
