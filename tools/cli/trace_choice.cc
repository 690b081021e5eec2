#include "tools/cli/trace_choice.h"

#include <fmt/format.h>

#include "steptape/error.h"
#include "storage/trace/reader.h"
#include "tools/cli/output.h"
#include "tools/cli/progress.h"

namespace steptape::tools {
namespace {

std::string reading(const std::filesystem::path& path) {
  std::error_code error;
  const std::uintmax_t bytes = std::filesystem::file_size(path, error);
  return fmt::format("reading {}{}", path.string(),
                     error ? "" : fmt::format(" ({})", size_of(bytes)));
}

trace::Trace read_all(const std::filesystem::path& path) {
  try {
    const Progress progress(reading(path));
    return storage::read(path);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kDataLoss) throw;
    throw Error(
        error.code(),
        fmt::format("{}. `steptape check` lists what is wrong, and `steptape dump --partial` "
                    "shows what is left",
                    error.what()));
  }
}

std::optional<trace::Trace> read_left(const std::filesystem::path& path, storage::Report& report) {
  const Progress progress(reading(path));
  return storage::recover(path, report);
}

[[noreturn]] void refuse(const std::string& message) {
  throw Error(ErrorCode::kInvalidArgument, message);
}

std::string names_of(const trace::Trace& trace) {
  std::string names;
  for (const trace::Step& step : trace.steps) {
    names += (names.empty() ? "" : ", ") + shown(step.name);
  }
  return names.empty() ? "none" : names;
}

const trace::Step& choose_step(const trace::Trace& trace, const std::string& name) {
  if (name.empty() && trace.steps.size() == 1) return trace.steps.front();
  if (name.empty()) {
    refuse(fmt::format("choose a step with --step; there are: {}", names_of(trace)));
  }
  const trace::Step* step = trace.find_step(name);
  if (!step) refuse(fmt::format("no step is called `{}`; there are: {}", name, names_of(trace)));
  return *step;
}

std::size_t last_variant(const trace::Step& step) {
  for (std::size_t i = step.recordings.size(); i > 0; --i) {
    if (step.recordings[i - 1].status != trace::Status::kWarmUp) return i - 1;
  }
  return step.recordings.size() - 1;
}

}  // namespace

trace::Trace open_trace(const std::filesystem::path& path, Parts parts) {
  if (parts == Parts::kAll) return read_all(path);
  storage::Report report;
  std::optional<trace::Trace> trace = read_left(path, report);
  for (const std::string& problem : report.problems) complain(shown(problem));
  if (trace) return *std::move(trace);
  throw Error(ErrorCode::kDataLoss, fmt::format("nothing is left of {}", path.string()));
}

std::string_view fact_of(const trace::Trace& trace, std::string_view name) {
  const auto fact = std::ranges::find(trace.run, name, &trace::Fact::name);
  return fact == trace.run.end() ? std::string_view() : fact->value;
}

trace::Trace with_step_alone(trace::Trace trace, const std::string& name) {
  trace.steps = {trace::Step(choose_step(trace, name))};
  trace.state.clear();
  return trace;
}

trace::Trace FileOptions::open() const {
  trace::Trace trace = open_trace(path, partial ? Parts::kWhatIsLeft : Parts::kAll);
  return step.empty() ? std::move(trace) : with_step_alone(std::move(trace), step);
}

ChosenRecording choose_recording(const trace::Trace& trace, const std::string& step,
                                 std::optional<std::size_t> position) {
  const trace::Step& chosen = choose_step(trace, step);
  const std::size_t count = chosen.recordings.size();
  if (count == 0) refuse(fmt::format("step `{}` has no recording", shown(chosen.name)));
  if (position && *position >= count) {
    refuse(fmt::format("step `{}` has no recording {}; it has {}, counted from 0",
                       shown(chosen.name), *position, count_of(count, "recording")));
  }
  return {&chosen, position.value_or(last_variant(chosen))};
}

void add_options(CLI::App& command, RecordingOptions& options) {
  command.add_option("--step", options.step, "The step of this name; else the only one");
  command.add_option("--recording", options.recording,
                     "The recording at this position, from 0; else the last of a plan");
  command.add_option("-o,--output", options.out, "A file; without it, the standard output");
}

}  // namespace steptape::tools
