#pragma once

#include <string>
#include <vector>

#include "session/observe/call_ledger.h"
#include "steptape/pack.h"
#include "trace/ledger.h"

namespace steptape::session {

class Journal;
struct SessionState;

/// What the ledger is to say of one call of a step, while this lives; it is written when this goes
/// and the call ended, if only by an exception after its end. Nothing where nobody keeps a ledger.
class CallLine {
 public:
  /// All must outlive the object. `arguments` as the call found them.
  CallLine(SessionState& session, Journal& journal, const std::string& step,
           const std::vector<pack::Leaf>& arguments);
  ~CallLine();
  CallLine(const CallLine&) = delete;
  CallLine& operator=(const CallLine&) = delete;

 private:
  using Clock = CallLedger::Clock;

  void take_state();

  SessionState& session_;
  Journal& journal_;
  const std::string& step_;
  trace::LedgerLine line_;
  trace::LedgerLine* outer_ = nullptr;  ///< of a call that this one is inside
  Clock::time_point start_;
};

}  // namespace steptape::session
