#include <fmt/format.h>

#include <memory>

#include "tools/cli/commands.h"
#include "tools/cli/json.h"
#include "tools/cli/output.h"
#include "tools/cli/trace_choice.h"
#include "tools/dump/info_json.h"
#include "tools/dump/summary.h"
#include "trace/text/text.h"

namespace steptape::tools {
namespace {

template <typename... Args>
void line(fmt::format_string<Args...> format, Args&&... args) {
  put(fmt::format(format, std::forward<Args>(args)...) + "\n");
}

void show_facts(std::string_view name, const std::vector<trace::Fact>& facts) {
  std::string words;
  for (const trace::Fact& fact : facts) {
    words += (words.empty() ? "" : ", ") + shown(fact.name) + " " + shown(fact.value);
  }
  line("{:<13}{}", name, words.empty() ? "not said" : words);
}

void show_memory(const trace::Recording& recording, const Summary& summary) {
  line("    {:<13}{}, {} in {}", "memory", size_of(summary.bytes),
       count_of(recording.tensors.size(), "tensor"), count_of(recording.buffers.size(), "buffer"));
  for (const RoleTotal& total : summary.roles) {
    line("      {:<17}{:>6}{:>12}", name_of(total.role), total.buffers, size_of(total.bytes));
  }
  line("    {:<13}{}, {}", "parameters", count_of(summary.parameters.size(), "tensor"),
       count_of(summary.elements, "element"));
}

void show_optimizer(const trace::OptimizerLayout& optimizer) {
  line("    {:<13}{}, {}", shown(optimizer.path), shown(optimizer.type),
       count_of(optimizer.groups.size(), "group"));
  for (const trace::ParameterGroup& group : optimizer.groups) {
    std::string words;
    for (const trace::NamedValue& named : group.hyperparameters) {
      words += fmt::format("{}{}={}", words.empty() ? "" : " ", shown(named.name),
                           trace::words_of(named.value));
    }
    line("      {}: {}", count_of(group.parameters.size(), "parameter"), words);
  }
}

std::string place_of(const Constant& constant) {
  if (constant.first_op == trace::kNone) return "read by no op";
  std::string place = fmt::format("first read by op {}", constant.first_op);
  if (!constant.module.empty()) place += " in " + shown(constant.module);
  if (!constant.scope.empty()) place += ", " + shown(constant.scope);
  return place;
}

/// Each outside tensor has its line, so that nobody ships a data set by accident; the small change
/// that the host makes inside the step has one together.
void show_constants(const std::vector<Constant>& constants) {
  std::uint64_t made_by_host = 0;
  std::uint64_t bytes = 0;
  std::uint64_t bytes_of_host = 0;
  for (const Constant& constant : constants) {
    bytes += constant.bytes;
    if (!constant.path.empty()) continue;
    ++made_by_host;
    bytes_of_host += constant.bytes;
  }
  line("    {:<13}{}", "constants",
       constants.empty() ? "none" : fmt::format("{}, {}", constants.size(), size_of(bytes)));
  for (const Constant& constant : constants) {
    if (constant.path.empty()) continue;
    line("      {:<17}{:>18}  {}, {}", shown(constant.path), size_of(constant.bytes),
         constant.is_kept ? "in the file" : "not in the file", place_of(constant));
  }
  if (made_by_host > 0) {
    line("      {:<17}{:>6}{:>12}", "made by the host", made_by_host, size_of(bytes_of_host));
  }
}

void show_recording(std::size_t position, const trace::Recording& recording) {
  const Summary summary = summarize(recording);
  line("  recording {}  {}{}{}{}", position, name_of(recording.status),
       recording.call == 0 ? "" : fmt::format(", call {}", recording.call),
       recording.op_digests.empty() ? "" : ", with digests",
       recording.op_ns.empty() ? "" : ", with times");
  line("    {:<13}{} forward, {} backward, of {}", count_of(recording.ops.size(), "op"),
       recording.ops.size() - summary.backward_ops, summary.backward_ops,
       count_of(recording.operators.size(), "operator"));
  show_memory(recording, summary);
  for (const trace::OptimizerLayout& optimizer : recording.optimizers) show_optimizer(optimizer);
  show_constants(summary.constants);
  line("    {:<13}{}", "refusals",
       recording.refusals.empty() ? "none" : std::to_string(recording.refusals.size()));
  for (const Refusal& refusal : recording.refusals) {
    line("      {}", toned(Tone::kBad, shown(refusal.text())));
  }
}

void show(const std::string& path, const trace::Trace& trace) {
  line("{}  {}", toned(Tone::kHeading, path), size_of(std::filesystem::file_size(path)));
  show_facts("producer", trace.producer);
  show_facts("run", trace.run);
  show_facts("environment", trace.environment);
  line("{:<13}{}", "saved state",
       trace.state.empty()
           ? "none"
           : fmt::format("{}, {}", trace.state.size(), size_of(bytes_of_state(trace))));
  for (const trace::Step& step : trace.steps) {
    const std::string place = step.place.empty() ? "" : "  " + shown(step.place);
    line("\nstep {}{}  {}", toned(Tone::kHeading, shown(step.name)), place,
         count_of(step.recordings.size(), "recording"));
    for (std::size_t i = 0; i < step.recordings.size(); ++i) show_recording(i, step.recordings[i]);
  }
}

}  // namespace

void add_info(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand("info", "Show what a trace holds, on one screen");
  auto options = std::make_shared<FileOptions>();
  command->add_option("FILE", options->path, "A trace")->required();
  command->add_flag("--json", options->json, "Print JSON");
  command->add_flag("--partial", options->partial, "Show what is left of a damaged file");
  command->footer(
      "Examples:\n"
      "  steptape info run.tape\n"
      "  steptape info run.tape --json | jq '.steps[].recordings[].constants'");
  command->callback([options, &exit_code] {
    const trace::Trace trace = options->open();
    if (options->json) {
      put(json_text(info_json(options->path, trace)));
    } else {
      show(options->path, trace);
    }
    exit_code = kGood;
  });
}

}  // namespace steptape::tools
