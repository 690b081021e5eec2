#include "session/step_context.h"

#include "session/observe/call_digests.h"
#include "session/session_state.h"

namespace steptape::session {

StepContext::StepContext(SessionState& of, std::string with_name, std::string at, bool of_update)
    : session(of),
      name(std::move(with_name)),
      place(std::move(at)),
      is_update(of_update),
      schedule(of.options.record),
      journal(of, name, place),
      plans(of, journal, name) {}

void StepContext::note_results(const pack::Results& results) {
  if (trace::LedgerLine* line = journal.line()) line->results = digest_of(results);
  schedule.note(results);
}

}  // namespace steptape::session
