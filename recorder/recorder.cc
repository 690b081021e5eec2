#include "recorder/recorder.h"

#include "recorder/active_listener.h"
#include "recorder/closing.h"
#include "recorder/ledger.h"
#include "recorder/scopes.h"
#include "recorder/tape.h"
#include "steptape/error.h"

namespace steptape::recorder {
namespace {

void write_returned(trace::Recording& recording, const Returned& returned) {
  for (const trace::Value& number : returned.numbers) {
    recording.numbers.push_back({number, trace::kNone});
  }
  recording.observed = static_cast<trace::Index>(returned.observed);
}

}  // namespace

bool is_recording() noexcept { return active_listener() != nullptr; }

Recorded record(const StepFunction& step, const std::vector<Argument>& arguments,
                const live::Objects& objects, Interceptor& interceptor) {
  if (is_recording()) {
    throw Error(ErrorCode::kFailedPrecondition,
                "a recording is active in this thread: a step cannot be recorded inside another");
  }
  objects.check_alive();
  Recorded recorded;
  const auto tape = std::make_shared<Tape>(objects);
  const Closing closing(*tape);
  tape->guarded([&] { write_entry(tape->ledger(), arguments); });
  {
    const ScopeWatch scopes;
    const auto listening = interceptor.listen(tape);
    Returned returned = step();
    recorded.results = std::move(returned.results);
    tape->guarded([&] { write_returned(tape->ledger().recording, returned); });
  }
  tape->guarded([&] { write_exit(tape->ledger(), arguments, recorded); });
  recorded.recording = std::move(tape->ledger().recording);
  return recorded;
}

}  // namespace steptape::recorder
