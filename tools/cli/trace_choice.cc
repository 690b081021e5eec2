#include "tools/cli/trace_choice.h"

#include <fmt/format.h>

#include "steptape/error.h"
#include "tools/cli/output.h"

namespace steptape::tools {
namespace {

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
    if (step.recordings[i - 1].standing != trace::Standing::kWarmUp) return i - 1;
  }
  return step.recordings.size() - 1;
}

}  // namespace

trace::Trace with_step_alone(trace::Trace trace, const std::string& name) {
  trace.steps = {trace::Step(choose_step(trace, name))};
  trace.state.clear();
  return trace;
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

}  // namespace steptape::tools
