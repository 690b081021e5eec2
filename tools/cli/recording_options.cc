#include "tools/cli/recording_options.h"

namespace steptape::tools {

void add_options(CLI::App& command, RecordingOptions& options) {
  command.add_option("--step", options.step, "The step of this name; else the only one");
  command.add_option("--recording", options.recording,
                     "The recording at this position, from 0; else the last of a plan");
  command.add_option("-o,--output", options.out, "A file; without it, the standard output");
}

}  // namespace steptape::tools
