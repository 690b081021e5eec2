#include "session/session_state.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <utility>

#include "live/optimizer_layout.h"
#include "replayer/planner/optimizers/optimizers.h"
#include "session/arguments.h"
#include "session/keep/record_schedule.h"
#include "session/observe/log.h"
#include "session/step_life.h"
#include "steptape/error.h"
#include "storage/ledger/ledger_reader.h"
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

}  // namespace

SessionState::SessionState() : number(++sessions_made) {}

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
  run = RunIdentity::now();
  is_on_device = std::ranges::any_of(objects.snapshot().tensors, [](const live::TensorAt& at) {
    return at.tensor.defined() && at.tensor.is_cuda();
  });
  if (options.trace.empty()) return;
  trace_path = run.own(options.trace);
  kept = std::make_unique<KeptRecordings>(trace_path);
  earlier = std::make_unique<EarlierTrace>(trace_path);
  if (!options.ledger) return;
  ledger = std::make_unique<CallLedger>(storage::ledger_beside(trace_path), run.digest(),
                                        options.resume);
  if (ledger->is_taken()) lose_trace(ledger->problem());
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

void SessionState::lose_trace(std::string why) {
  trace_problem = std::move(why);
  if (!is_asked_by_environment) return;
  say_once(std::string(trace::RecordRequest::kVariable) + ": " + trace_path +
           " is not kept: " + trace_problem);
}

bool SessionState::keeps_recordings() const {
  return kept != nullptr && (ledger == nullptr || !ledger->is_taken());
}

guards::Declared SessionState::declared() const {
  guards::Declared declared;
  for (const Declaration& value : host_values) {
    declared.host_values.push_back(argument_of(value.function()).fact);
  }
  for (const Declaration& fact : facts) declared.facts.push_back(argument_of(fact.function()).fact);
  return declared;
}

void SessionState::describe(const guards::Declared& declared, trace::Recording& recording) const {
  for (std::size_t i = 0; i < host_values.size(); ++i) {
    recording.host_values.push_back({host_values[i].name, declared.host_values[i]});
  }
  for (std::size_t i = 0; i < facts.size(); ++i) {
    recording.facts.push_back({facts[i].name, declared.facts[i]});
  }
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

SessionState::Call::Call(SessionState& session)
    : session_(session), is_outermost_(!session.declared_now) {
  if (is_outermost_) session_.declared_now = session_.declared();
}

SessionState::Call::~Call() {
  if (!is_outermost_) return;
  session_.declared_last = *std::move(session_.declared_now);
  session_.declared_now.reset();
}

}  // namespace steptape::session
