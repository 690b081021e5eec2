#include <fmt/format.h>

#include <memory>

#include "steptape/error.h"
#include "tools/cli/commands.h"
#include "tools/cli/exit_code.h"
#include "tools/cli/output.h"
#include "tools/cli/recording_options.h"
#include "tools/cli/result_file.h"
#include "tools/cli/trace_choice.h"
#include "tools/export/extract_python.h"

namespace steptape::tools {
namespace {

struct Options : RecordingOptions {
  std::size_t op = 0;
};

/// The exit code.
int extract(const Options& options) {
  const trace::Trace trace = open_trace(options.path, Parts::kAll);
  const ChosenRecording chosen = choose_recording(trace, options.step, options.recording);
  const std::size_t count = chosen.recording().ops.size();
  if (options.op >= count) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("recording {} has no op {}; it has {}, counted from 0", chosen.position,
                            options.op, count_of(count, "op")));
  }
  const auto program = extract_python(chosen, static_cast<trace::Index>(options.op));
  if (const auto* none = std::get_if<NoProgram>(&program)) {
    complain(fmt::format("no program can run op {}: {}", options.op, none->reason));
    return kDiffers;
  }
  put_result(std::get<std::string>(program), options.out);
  return kGood;
}

}  // namespace

void add_extract(CLI::App& app, int& exit_code) {
  CLI::App* command =
      app.add_subcommand("extract", "Write a Python program that runs one recorded op alone");
  auto options = std::make_shared<Options>();
  command->add_option("FILE", options->path, "A trace")->required();
  command->add_option("--op", options->op, "The op at this position, from 0")->required();
  add_options(*command, *options);
  command->footer(
      "Shapes, strides, dtypes and scalars are the recorded ones. Values are made up from a seed,\n"
      "but for captured constants of up to 4 KiB.\n"
      "Examples:\n"
      "  steptape extract run.tape --op 17 -o op17.py && python op17.py\n"
      "Exit status: 0 written, 1 no program can make the op's arguments, 2 trouble.");
  command->callback([options, &exit_code] { exit_code = extract(*options); });
}

}  // namespace steptape::tools
