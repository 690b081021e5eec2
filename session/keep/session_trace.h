#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "session/keep/earlier_trace.h"
#include "session/keep/kept_recordings.h"
#include "session/observe/call_ledger.h"
#include "session/observe/run_identity.h"
#include "trace/model.h"

namespace steptape::session {

struct SessionState;

/// The trace of a session: the file of Options::trace with the ledger beside it, and what an
/// earlier run left there. No failure to write reaches the training: problem() says what it was.
class SessionTrace {
 public:
  explicit SessionTrace(const SessionState& session) : session_(session) {}

  /// At the first call of a step: finds out who runs, and opens what Options::trace names.
  void start();
  /// The path as this process has it; "" where no trace is kept.
  const std::string& path() const { return path_; }
  /// Why it could not be written; "" where it could.
  const std::string& problem() const { return problem_; }
  /// Null where nobody keeps one.
  CallLedger* ledger() const { return ledger_.get(); }
  /// What was at path() when the session began; null where there is no such path.
  EarlierTrace* earlier() const { return earlier_.get(); }
  /// The number after the name that an earlier run's trace has now.
  std::optional<std::uint64_t> earlier_number() const { return earlier_number_; }

  /// Everything recorded so far; with the bytes of all persistent tensors when `with_state`.
  /// Throws Error (failed_precondition) when it is, and a tracked object is gone.
  trace::Trace contents(bool with_state) const;
  /// Writes the contents to `path`. What is saved to path() stays there when the session ends.
  void save(const std::string& path, bool with_state);
  /// Whether there is a trace, and it is in no other hands.
  bool keeps_recordings() const;
  /// Takes a recording of the step that Options::record asked for into the trace.
  void keep(const trace::Step& step, const trace::Recording& recording);
  /// Writes the plans and what became of the calls so far, if there is a trace.
  void write();
  /// The session ends: writes what became of all calls, and ends what grows beside the trace.
  void finish();

 private:
  /// Notes why, and tells whoever asked for recordings by the environment, once.
  void lose(std::string why);
  /// Keeps the trace of an earlier run that did something else, before this run's takes its place.
  /// Throws Error.
  void make_room();
  const SessionState& session_;
  std::optional<RunIdentity> run_;  ///< since the first call
  std::string path_;
  std::string problem_;
  std::unique_ptr<CallLedger> ledger_;
  std::unique_ptr<EarlierTrace> earlier_;
  std::optional<std::uint64_t> earlier_number_;
  std::unique_ptr<KeptRecordings> kept_;  ///< null where the trace is not kept
  bool has_room_ = false;                 ///< what is at the path may be written over
  bool is_saved_ = false;                 ///< there is what the program has saved
};

}  // namespace steptape::session
