#pragma once

#include <CLI/App.hpp>
#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "trace/model.h"

/// Which part of a trace a command is about.
namespace steptape::tools {

enum class Parts { kAll, kWhatIsLeft };

/// Reads the trace. With Parts::kWhatIsLeft a damaged file gives what is whole of it, and what is
/// missing goes to the standard error. Throws Error as storage::read does.
trace::Trace open_trace(const std::filesystem::path& path, Parts parts);

/// What the run that left the trace says of itself by this name; empty where it says nothing.
std::string_view fact_of(const trace::Trace& trace, std::string_view name);

/// The trace with one step alone and without saved state, which belongs to all steps. Throws Error
/// (invalid_argument) with the names that there are.
trace::Trace with_step_alone(trace::Trace trace, const std::string& name);

/// What a command line says of a trace that is shown.
struct FileOptions {
  std::string path;
  std::string step;  ///< empty: all
  bool json = false;
  bool partial = false;

  trace::Trace open() const;
};

/// One recording with its place in the trace.
struct ChosenRecording {
  const trace::Step* step = nullptr;
  std::size_t position = 0;

  const trace::Recording& recording() const { return step->recordings[position]; }
};

/// The recording at `position` of the step called `step`. An empty name means the only step, no
/// position the last recording that plans are made from, or the last of all. Refers to `trace`,
/// which must outlive it. Throws Error (invalid_argument) with what there is.
ChosenRecording choose_recording(const trace::Trace& trace, const std::string& step,
                                 std::optional<std::size_t> position);

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
