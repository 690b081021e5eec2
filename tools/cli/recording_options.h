#pragma once

#include <CLI/App.hpp>
#include <cstddef>
#include <optional>
#include <string>

namespace steptape::tools {

/// What a command line says of one recording that becomes a result.
struct RecordingOptions {
  std::string path;
  std::string step;                      ///< as choose_recording takes it
  std::optional<std::size_t> recording;  ///< its position, as choose_recording takes it
  std::string out;                       ///< empty: the standard output
};

/// Adds --step, --recording and --output to `command`. `options` must outlive the parsing.
void add_options(CLI::App& command, RecordingOptions& options);

}  // namespace steptape::tools
