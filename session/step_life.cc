#include "session/step_life.h"

#include <c10/util/ScopeExit.h>
#include <fmt/format.h>

#include <span>
#include <string>
#include <utility>

#include "session/arguments.h"
#include "session/exclusive_use.h"
#include "session/observe/account.h"
#include "session/observe/call_ledger.h"
#include "session/observe/journal.h"
#include "session/session_state.h"
#include "steptape/error.h"
#include "trace/refusals.h"

namespace steptape::session {

StepLife::StepLife(SessionState& session, std::string name, std::string place, bool is_update)
    : step_(session, std::move(name), std::move(place), is_update) {}

std::optional<pack::Results> StepLife::call(
    std::vector<pack::Leaf> leaves, const Eager& eager,
    const std::function<void(const pack::Results&)>& on_replay) {
  if (is_orphan_) {
    throw Error(ErrorCode::kFailedPrecondition,
                "step \"" + step_.name +
                    "\" was called after its session was destroyed; keep the session alive "
                    "as long as its steps");
  }
  if (InsideStep::now() == InsideStep::Depth::kWatched) {
    call_inside(std::move(leaves), eager);
    return std::nullopt;
  }
  SessionState& session = step_.session;
  check_alive();
  std::vector<const void*> objects = session.objects.identities();
  objects.push_back(this);
  const ExclusiveUse use(objects, step_.name, session.objects.text());
  session.start();
  const Declarations::Call declared(session.declarations);
  check_alive();  // the program's own functions have run
  const auto restart_if_said = [this] {
    if (std::exchange(must_restart_, false)) step_.plans.restart();
  };
  // said in a step that threw, in a look after one, or in a call of another step
  restart_if_said();
  const std::shared_ptr<StepLife> alive = shared_from_this();
  const CallLine line(session, step_.journal, step_.name, leaves);
  const Given given(arguments_of(std::move(leaves)), *session.declarations.now());
  Call call(step_, given, eager);
  const auto outer =
      c10::make_scope_exit([this, before = std::exchange(current_, &call)] { current_ = before; });
  std::optional<pack::Results> results = call.run();
  restart_if_said();
  call.end(results, on_replay);
  return results;
}

/// A call in a step that is recorded or verified is a part of that.
void StepLife::call_inside(std::vector<pack::Leaf> leaves, const Eager& eager) {
  SessionState& session = step_.session;
  session.start();
  const CallLine line(session, step_.journal, step_.name, leaves);
  step_.journal.begin_call();
  step_.journal.ran_eagerly();
  step_.journal.refused(trace::make_refusal(
      RefusalCode::kNestedStep, "step \"" + step_.name + "\" was called inside another step"));
  if (!session.declarations.now() && !session.declarations.host_values().empty()) {
    InsideStep::note_foreign_values();
    session.declarations.ask();
  }
  step_.note_results(eager());
}

/// Plans over an object that is gone are of no more use: their memory goes too.
void StepLife::check_alive() {
  try {
    step_.session.objects.check_alive();
  } catch (const Error&) {
    step_.plans.variants().clear();
    throw;
  }
}

const void* StepLife::note_of_tried() const {
  return current_ == nullptr ? nullptr : current_->note_of_tried();
}

// The step that is under way may be the one that says so.
void StepLife::invalidate(const std::string& why) {
  step_.journal.invalidated(why);
  if (step_.session.declarations.now()) {
    must_restart_ = true;
  } else {
    step_.plans.restart();
  }
}

Stats StepLife::stats() const {
  Stats stats = step_.journal.stats();
  for (const auto& variant : step_.plans.variants()) stats.variants.push_back(variant->stats());
  if (is_orphan_) return stats;
  const SessionState& session = step_.session;
  stats.trace_problem = session.trace.problem();
  if (const CallLedger* ledger = session.trace.ledger(); ledger != nullptr) {
    stats.ledger_problem = ledger->problem();
  }
  stats.log_problem = session.log.problem();
  return stats;
}

std::string StepLife::explain() const {
  return session::explain(step_.name, step_.place, stats(), step_.plans.differences(),
                          *step_.session.wording);
}

trace::Step StepLife::to_trace(bool with_state) const {
  return {step_.name, step_.place, step_.plans.to_trace(with_state),
          account_of(stats(), *step_.session.wording)};
}

}  // namespace steptape::session
