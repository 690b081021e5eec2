#pragma once

#include <CLI/App.hpp>

namespace steptape::tools {

/// Adds `bench`, as tools/cli/commands.h says.
void add_bench(CLI::App& app, int& exit_code);

}  // namespace steptape::tools
