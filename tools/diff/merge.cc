#include "diff/merge.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "steptape/error.h"
#include "steptape/options.h"
#include "storage/trace/writer.h"
#include "tools/cli/commands.h"
#include "tools/cli/json.h"
#include "tools/cli/output.h"
#include "tools/cli/trace_choice.h"

namespace steptape::tools {
namespace {

struct MergeCommandOptions {
  std::vector<std::string> inputs;
  std::string out;
  bool force = false;
  bool json = false;
};

/// Throws Error: (invalid_argument) where the result would replace an input, or an input comes
/// twice; (failed_precondition) where it would replace another file and nobody said so.
void require_free(const MergeCommandOptions& options) {
  for (std::size_t i = 0; i < options.inputs.size(); ++i) {
    for (std::size_t k = 0; k < i; ++k) {
      if (!std::filesystem::equivalent(options.inputs[i], options.inputs[k])) continue;
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("{} and {} are one file", options.inputs[k], options.inputs[i]));
    }
  }
  if (!std::filesystem::exists(options.out)) return;
  for (const std::string& input : options.inputs) {
    if (!std::filesystem::equivalent(input, options.out)) continue;
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{} is one of the traces to join: choose another name for the result",
                            options.out));
  }
  if (options.force) return;
  throw Error(ErrorCode::kFailedPrecondition,
              fmt::format("{} exists; --force replaces it", options.out));
}

/// Recordings that plans are made from, unlike warm-ups and calls that were recorded besides.
std::size_t variants_of(const trace::Step& step) {
  return static_cast<std::size_t>(
      std::ranges::count(step.recordings, trace::Status::kTrusted, &trace::Recording::status));
}

/// What whoever goes on with the result should know.
std::vector<std::string> warnings_of(const diff::Merged& merged) {
  std::vector<std::string> warnings;
  const std::size_t most = steptape::Options().max_variants;
  for (const trace::Step& step : merged.trace.steps) {
    const std::size_t variants = variants_of(step);
    if (variants <= most) continue;
    warnings.push_back(fmt::format(
        "step {} has {} variants, more than the {} that a session keeps by default (max_variants)",
        step.name, variants, most));
  }
  if (!merged.differing.empty()) {
    warnings.push_back(
        fmt::format("{} saved by several traces with different contents, {} first; the first "
                    "trace's stay. Where "
                    "these are different objects, give each a name of its own (model=, optimizer=)",
                    count_of(merged.differing.size(), "path"), merged.differing.front()));
  }
  return warnings;
}

Json origins_json(const std::vector<diff::Origin>& origins, const MergeCommandOptions& options) {
  return each(origins, [&options](const diff::Origin& origin) {
    return Json{{"file", options.inputs[origin.trace]}, {"recording", origin.recording}};
  });
}

Json merged_json(const diff::Merged& merged, const MergeCommandOptions& options,
                 const std::vector<std::string>& warnings) {
  Json steps = Json::array();
  for (std::size_t i = 0; i < merged.steps.size(); ++i) {
    steps.push_back({{"name", merged.steps[i].name},
                     {"variants", variants_of(merged.trace.steps[i])},
                     {"recordings", origins_json(merged.steps[i].kept, options)},
                     {"left_out", origins_json(merged.steps[i].left_out, options)}});
  }
  Json json = {{"file", options.out},
               {"inputs", options.inputs},
               {"steps", steps},
               {"state_of", nullptr},
               {"warnings", warnings}};
  if (!merged.trace.state.empty()) json["state_of"] = options.inputs[merged.state_of];
  return json;
}

/// "2 of a.tape, 1 of b.tape"
std::string words_of(const std::vector<diff::Origin>& origins, const MergeCommandOptions& options) {
  std::string words;
  for (std::size_t i = 0; i < options.inputs.size(); ++i) {
    const auto count = std::ranges::count(origins, i, &diff::Origin::trace);
    if (count == 0) continue;
    words += fmt::format("{}{} of {}", words.empty() ? "" : ", ", count, options.inputs[i]);
  }
  return words;
}

void show(const diff::Merged& merged, const MergeCommandOptions& options) {
  put(fmt::format("{}: {} of {}, {}\n", toned(Tone::kHeading, options.out),
                  count_of(merged.steps.size(), "step"), count_of(options.inputs.size(), "trace"),
                  size_of(std::filesystem::file_size(options.out))));
  for (std::size_t i = 0; i < merged.steps.size(); ++i) {
    const diff::MergedStep& step = merged.steps[i];
    put(fmt::format(
        "  {}: {}; recordings: {}{}\n", shown(step.name),
        count_of(variants_of(merged.trace.steps[i]), "variant"),
        step.kept.empty() ? "none" : words_of(step.kept, options),
        step.left_out.empty() ? "" : "; known already: " + words_of(step.left_out, options)));
  }
  if (!merged.trace.state.empty()) {
    put(fmt::format("  saved state of {}\n", options.inputs[merged.state_of]));
  }
}

int run(const MergeCommandOptions& options) {
  std::vector<trace::Trace> traces;
  for (const std::string& input : options.inputs) traces.push_back(open_trace(input, Parts::kAll));
  require_free(options);
  const diff::Merged merged = diff::merge(traces, options.inputs);
  storage::write(merged.trace, options.out);
  const std::vector<std::string> warnings = warnings_of(merged);
  for (const std::string& warning : warnings) complain(shown(warning));
  if (options.json) {
    put(json_text(merged_json(merged, options, warnings)));
  } else {
    show(merged, options);
  }
  return kGood;
}

}  // namespace

void add_merge(CLI::App& app, int& exit_code) {
  CLI::App* command =
      app.add_subcommand("merge", "Join traces of one program: their recordings become variants");
  auto options = std::make_shared<MergeCommandOptions>();
  command->add_option("FILES", options->inputs, "Two traces or more")
      ->required()
      ->expected(2, CLI::detail::expected_max_vector_size);
  command->add_option("-o,--output", options->out, "The trace to write")->required();
  command->add_flag("--force", options->force, "Replace the result where it exists");
  command->add_flag("--json", options->json, "Print JSON");
  command->footer(
      "Steps of one name become one. Of recordings that do the same one is kept; saved state is "
      "that\n"
      "of the first trace that has one. Ledgers are not joined.\n"
      "Examples:\n"
      "  steptape merge train.tape last_batch.tape -o all.tape\n"
      "  steptape merge runs/*.tape -o all.tape --force --json | jq '.steps[].variants'\n"
      "Exit status: 0 joined, 2 trouble: traces that cannot be joined, or a file that is missing,\n"
      "damaged or in the way. Nothing is written then.");
  command->callback([options, &exit_code] { exit_code = run(*options); });
}

}  // namespace steptape::tools
