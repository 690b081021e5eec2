#pragma once

#include <CLI/CLI.hpp>

namespace steptape::tools {

/// `steptape verify`: does recorded calls again, and compares what each op leaves with what it
/// left.
void add_verify(CLI::App& app, int& exit_code);

}  // namespace steptape::tools
