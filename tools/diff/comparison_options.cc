#include "tools/diff/comparison_options.h"

namespace steptape::tools {

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

}  // namespace steptape::tools
