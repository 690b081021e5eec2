#pragma once

#include <CLI/App.hpp>

/// As tools/cli/commands.h says. What these throw, `main` puts on the standard error.
namespace steptape::tools {

void add_bench(CLI::App& app, int& exit_code);
/// Its exit code is 1 when a guard refused.
void add_replay(CLI::App& app, int& exit_code);
void add_verify(CLI::App& app, int& exit_code);

}  // namespace steptape::tools
