#include "session/session_state.h"

#include <utility>

#include "session/arguments.h"

namespace steptape::session {

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
