#include <unistd.h>

#include <chrono>

#include "live/ambient.h"
#include "session/checkpoint.h"
#include "session/session_state.h"
#include "session/step_life.h"
#include "storage/writer.h"
#include "trace/numbers.h"

namespace steptape::session {
namespace {

std::vector<trace::Fact> run_facts() {
  char host[256] = {};
  gethostname(host, sizeof host - 1);
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(now).count();
  return {
      {"host", host}, {"pid", std::to_string(getpid())}, {"saved_unix_s", std::to_string(seconds)}};
}

/// Keeps each number under its path.
auto adding_to(std::vector<trace::Saved>& saved) {
  return [&saved](const std::string& path, const trace::Value& value) {
    saved.push_back({path, 0, nullptr, value});
  };
}

}  // namespace

trace::Trace SessionState::to_trace(bool with_state) const {
  trace::Trace trace;
  trace.producer = live::producer();
  trace.run = run_facts();
  trace.environment = live::environment();
  for (const auto& step : steps) trace.steps.push_back(step->to_trace());
  if (!with_state) return trace;
  trace.state = saved_state(objects);
  const auto add = adding_to(trace.state);
  for (std::size_t i = 0; i < declared_last.host_values.size(); ++i) {
    trace::for_each_number(host_values[i].name, declared_last.host_values[i], add);
  }
  for (std::size_t i = 0; i < declared_last.facts.size(); ++i) {
    trace::for_each_number(facts[i].name, declared_last.facts[i], add);
  }
  return trace;
}

void SessionState::write_trace() {
  if (options.trace.empty()) return;
  try {
    storage::write(to_trace(/*with_state=*/false), options.trace);
    trace_problem.clear();
  } catch (const std::exception& error) {
    trace_problem = error.what();
  }
}

}  // namespace steptape::session
