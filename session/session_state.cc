#include "session/session_state.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <utility>

#include "live/optimizer_layout.h"
#include "replayer/planner/optimizers/optimizers.h"
#include "session/keep/record_schedule.h"
#include "session/observe/log.h"
#include "session/step_life.h"
#include "steptape/error.h"
#include "trace/record_request.h"

namespace steptape::session {
namespace {

std::atomic<std::uint64_t> sessions_made{0};

/// What the environment asks for. What it says wrong is told once and ignored: no training ends by
/// it.
trace::RecordRequest asked_by_environment() {
  const std::string whose = trace::RecordRequest::kVariable;
  const char* text = std::getenv(whose.c_str());
  if (text == nullptr) return {};
  try {
    const trace::RecordRequest asked = trace::RecordRequest::parse(text);
    const RecordSchedule schedule(asked.record);  // its signal must be one that can be handled
    return asked;
  } catch (const Error& error) {
    say_once(whose + ": " + error.what() + "; nothing is recorded for it");
    return {};
  }
}

const Wording& of_cpp() {
  static const Wording wording;
  return wording;
}

}  // namespace

SessionState::SessionState() : number(++sessions_made), wording(&of_cpp()) {}

void SessionState::set_options(Options given) {
  const RecordSchedule schedule(given.record);
  if (given.trace.empty() && !schedule.is_empty()) {
    throw Error(
        ErrorCode::kInvalidArgument,
        "Options::record asks for recordings, and there is no Options::trace to keep them in");
  }
  log = Log::open(given.log);
  const trace::RecordRequest asked = asked_by_environment();
  asked.add_to(given, number);
  is_asked_by_environment = !asked.text().empty();
  if (given.trace.empty() && is_asked_by_environment) {
    say_once(std::string(trace::RecordRequest::kVariable) +
             ": a session keeps no trace, and records nothing for it; `steptape record -o` names "
             "one");
  }
  options = std::move(given);
}

void SessionState::start() {
  if (std::exchange(started, true)) return;
  is_on_device = std::ranges::any_of(objects.snapshot().tensors, [](const live::TensorAt& at) {
    return at.tensor.defined() && at.tensor.is_cuda();
  });
  trace.start();
}

bool SessionState::is_being_captured(const std::vector<live::Argument>& arguments) const {
  const bool may_be =
      is_on_device || std::ranges::any_of(arguments, [](const live::Argument& argument) {
        return argument.tensor.defined() && argument.tensor.is_cuda();
      });
  if (!may_be) return false;
  const replayer::Backend* backend = replayer::backend_of(trace::DeviceKind::kCuda);
  return backend != nullptr && backend->is_capturing();
}

std::string SessionState::path_of(const torch::optim::Optimizer& optimizer) const {
  for (const auto& [path, tracked] : objects.optimizers()) {
    if (tracked == &optimizer) return path;
  }
  return "";
}

void SessionState::step_optimizer(torch::optim::Optimizer& optimizer) {
  const std::string path = path_of(optimizer);
  if (path.empty() || !replayer::is_known_optimizer(live::type_name(optimizer))) {
    optimizer.step();
    return;
  }
  const std::string name = replayer::update_step_of(path);
  auto step = std::ranges::find(steps, name, [](const auto& other) { return other->name(); });
  if (step == steps.end()) {
    steps.push_back(std::make_shared<StepLife>(*this, name, "Session::update", /*is_update=*/true));
    step = std::prev(steps.end());
  }
  const std::shared_ptr<StepLife> alive = *step;
  alive->call({}, [&optimizer] {
    optimizer.step();
    return pack::Results{};
  });
}

}  // namespace steptape::session
