#pragma once

#include <CLI/CLI.hpp>

namespace steptape::tools {

/// Adds `replay FILE --step NAME --inputs FILE|random --steps N --save OUT --json` to `app`. The
/// command runs when the subcommand was parsed; `exit_code` is 0 when every step ran, 1 when a
/// guard refused, 2 in trouble.
void add_replay(CLI::App& app, int& exit_code);

}  // namespace steptape::tools
