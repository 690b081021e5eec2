#include "steptape/session.h"

#include <torch/optim/optimizer.h>

#include <algorithm>

#include "replayer/planner/optimizers/optimizers.h"
#include "session/deferred.h"
#include "session/session_state.h"
#include "session/step_life.h"

namespace steptape {

struct Session::Impl {
  session::SessionState state;

  template <typename Object>
  Session& track(Session& session, const std::string& name, Object&& object) {
    must_not_have_started(name);
    state.objects.track(name, std::forward<Object>(object));
    return session;
  }

  void must_not_have_started(const std::string& name) const {
    if (!state.started) return;
    throw Error(ErrorCode::kFailedPrecondition,
                "\"" + name +
                    "\" came after the first call of a step; track and declare everything before");
  }

  void must_be_free(const std::string& name) const {
    if (name.empty() || state.declarations.has(name)) {
      throw Error(ErrorCode::kInvalidArgument, name.empty()
                                                   ? "a declared value needs a name"
                                                   : "\"" + name + "\" is declared already");
    }
  }
};

Session::Session(Options options) : impl_(std::make_unique<Impl>()) {
  impl_->state.set_options(std::move(options));
}

Session::~Session() {
  impl_->state.trace.finish();
  for (const auto& step : impl_->state.steps) step->orphan();
}

Session& Session::track(const std::string& name, torch::nn::Module& module) {
  return impl_->track(*this, name, module);
}

Session& Session::track(const std::string& name, std::shared_ptr<torch::nn::Module> module) {
  return impl_->track(*this, name, std::move(module));
}

Session& Session::track(const std::string& name, torch::optim::Optimizer& optimizer) {
  return impl_->track(*this, name, optimizer);
}

Session& Session::track(const std::string& name,
                        std::shared_ptr<torch::optim::Optimizer> optimizer) {
  return impl_->track(*this, name, std::move(optimizer));
}

Session& Session::track(const std::string& name, at::Tensor tensor) {
  return impl_->track(*this, name, std::move(tensor));
}

Session& Session::track(const std::string& name, at::Generator generator) {
  return impl_->track(*this, name, std::move(generator));
}

Session& Session::declare_host(const std::string& name, std::function<pack::Leaf()> function) {
  impl_->must_not_have_started(name);
  impl_->must_be_free(name);
  impl_->state.declarations.add_host_value({name, std::move(function)});
  return *this;
}

Session& Session::declare_fact(const std::string& name, std::function<pack::Leaf()> function) {
  impl_->must_not_have_started(name);
  impl_->must_be_free(name);
  impl_->state.declarations.add_fact({name, std::move(function)});
  return *this;
}

void Session::observe(const at::Tensor& tensor, std::function<void(const at::Tensor&)> function) {
  if (session::Deferred* deferred = session::Deferred::current()) {
    deferred->observe(tensor, std::move(function));
  } else {
    function(tensor);
  }
}

void Session::update(torch::optim::Optimizer& optimizer) {
  if (session::Deferred* deferred = session::Deferred::current()) {
    deferred->updates.push_back(&optimizer);
  } else {
    optimizer.step();
  }
}

std::shared_ptr<StepCore> Session::make_step(const std::string& name,
                                             const std::source_location& location) {
  auto& steps = impl_->state.steps;
  const bool taken = std::any_of(steps.begin(), steps.end(),
                                 [&](const auto& step) { return step->name() == name; });
  if (name.empty() || taken) {
    throw Error(ErrorCode::kInvalidArgument, name.empty()
                                                 ? "wrap: a step needs a name"
                                                 : "wrap: there is a step \"" + name +
                                                       "\" already; names are unique in a session");
  }
  if (name.ends_with(replayer::update_step_of(""))) {
    throw Error(ErrorCode::kInvalidArgument,
                "wrap: names such as \"" + name +
                    "\" are for the steps that Session::update makes; take another one");
  }
  const std::string file = location.file_name();
  const std::string place =
      file.substr(file.find_last_of('/') + 1) + ":" + std::to_string(location.line());
  steps.push_back(std::make_shared<session::StepLife>(impl_->state, name, place));
  return steps.back();
}

void Session::invalidate(const std::string& why) {
  impl_->state.invalidations.push_back(why);
  for (const auto& step : impl_->state.steps) step->invalidate(why);
}

void Session::save(const std::string& path, State state) const {
  impl_->state.trace.save(path, state == State::kWith);
}

std::string Session::explain() const {
  std::string text;
  for (const auto& step : impl_->state.steps) text += step->explain();
  for (const std::string& why : impl_->state.invalidations)
    text += "plans dropped by invalidate(): " + why + "\n";
  const session::SessionTrace& trace = impl_->state.trace;
  if (const auto number = trace.earlier_number()) {
    text +=
        "trace of an earlier run: kept as " + trace.path() + "." + std::to_string(*number) + "\n";
  }
  if (!trace.problem().empty()) text += "trace not written: " + trace.problem() + "\n";
  const session::CallLedger* ledger = trace.ledger();
  if (ledger != nullptr && !ledger->problem().empty()) {
    text += "ledger not written: " + ledger->problem() + "\n";
  }
  const std::string log_problem = impl_->state.log.problem();
  if (!log_problem.empty()) text += "log not written: " + log_problem + "\n";
  return text;
}

}  // namespace steptape
