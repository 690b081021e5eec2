#pragma once

#include <CLI/App.hpp>
#include <string>
#include <vector>

namespace steptape::tools {

/// What a command line says of two runs that are to be compared.
struct ComparisonOptions {
  std::string a, b;  ///< traces, folders of traces, or ledgers
  std::string step;
  std::vector<std::string> controls;
};

/// Adds A, B, --step and --control to `command`. `options` must outlive the parsing.
void add_options(CLI::App& command, ComparisonOptions& options);
/// Adds --control alone.
CLI::Option* add_control_option(CLI::App& command, std::vector<std::string>& controls);

}  // namespace steptape::tools
