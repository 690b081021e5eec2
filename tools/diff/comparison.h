#pragma once

#include <CLI/App.hpp>
#include <filesystem>
#include <string>
#include <vector>

#include "diff/diff.h"

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

/// Two traces and what came of their comparison. Of two ledgers alone, the traces are empty.
struct Comparison {
  trace::Trace a, b;
  diff::Diff diff;
  /// Whether a ledger ends in lines that nobody can read: where nothing differs, not all was
  /// compared.
  bool has_torn_ledger = false;
};

enum class Ledgers {
  kIgnored,
  kBeside,  ///< where both traces have one
};

/// Of two ledgers, or of two traces. With `step`, of the step of this name alone. `controls` are
/// traces or ledgers of other runs of the program that left `a`. Throws Error as the readers do,
/// and (invalid_argument) for a step that neither has, and for a ledger and something else.
Comparison compare(const std::filesystem::path& a, const std::filesystem::path& b,
                   const std::string& step, const std::vector<std::filesystem::path>& controls,
                   Ledgers ledgers);

}  // namespace steptape::tools
