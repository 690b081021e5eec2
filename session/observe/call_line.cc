#include "session/observe/call_line.h"

#include <algorithm>
#include <limits>

#include "session/observe/call_digests.h"
#include "session/observe/journal.h"
#include "session/session_state.h"

namespace steptape::session {

CallLine::CallLine(SessionState& session, Journal& journal, const std::string& step,
                   const std::vector<pack::Leaf>& arguments)
    : session_(session), journal_(journal), step_(step) {
  if (session_.ledger == nullptr) return;
  start_ = Clock::now();
  if (session_.options.digests) line_.inputs = digest_of(arguments);
  outer_ = journal_.write_to(&line_);
}

CallLine::~CallLine() {
  if (session_.ledger == nullptr) return;
  journal_.write_to(outer_);
  if (line_.call == 0) return;
  const Clock::time_point end = Clock::now();
  const auto us = std::chrono::duration_cast<std::chrono::microseconds>(end - start_);
  constexpr auto kMost = std::numeric_limits<std::uint32_t>::max();
  line_.microseconds = static_cast<std::uint32_t>(std::min<std::int64_t>(us.count(), kMost));
  if (session_.options.digests) take_state();
  session_.ledger->append(step_, line_, end);
}

/// Objects that are gone have no digests: the line says what it can.
void CallLine::take_state() {
  try {
    const StateDigests state = StateDigests::take(session_.objects);
    line_.gradients = state.gradients;
    line_.parameters = state.parameters;
    line_.generators = state.generators;
  } catch (const std::exception&) {
    line_.gradients = line_.parameters = line_.generators = 0;
  }
}

}  // namespace steptape::session
