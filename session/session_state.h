#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "guards/entry.h"
#include "live/objects.h"
#include "live/values.h"
#include "replayer/runtime/backends.h"
#include "session/keep/earlier_trace.h"
#include "session/keep/kept_recordings.h"
#include "session/observe/call_ledger.h"
#include "session/observe/counter_block.h"
#include "session/observe/log.h"
#include "session/observe/run_identity.h"
#include "steptape/options.h"
#include "steptape/pack.h"
#include "trace/model.h"

namespace steptape::session {

class StepLife;

/// What the steps of one session share.
struct SessionState {
  SessionState();
  /// Takes over the options, with what STEPTAPE_RECORD adds to them, and opens the log. Throws
  /// Error (invalid_argument).
  void set_options(Options options);

  std::uint64_t number;  ///< in the process, counted from 1
  Options options;
  bool is_asked_by_environment = false;  ///< for recordings: STEPTAPE_RECORD
  Log log;
  CounterBlock counters;
  live::Objects objects;
  struct Declaration {
    std::string name;
    std::function<pack::Leaf()> function;
    /// It only looks at what a place holds, and may be asked when a trace is saved.
    bool is_place = false;
  };
  std::vector<Declaration> host_values;
  std::vector<Declaration> facts;
  std::vector<std::shared_ptr<StepLife>> steps;
  /// What all plans of the session share on a device.
  std::shared_ptr<replayer::SharedPools> device_pools = std::make_shared<replayer::SharedPools>();
  /// The step "optimizer.step()" of an optimizer that a step has put off; made when first needed.
  /// An optimizer that is not tracked or not known is stepped as it is.
  void step_optimizer(torch::optim::Optimizer& optimizer);
  /// The path of a tracked optimizer, or "".
  std::string path_of(const torch::optim::Optimizer& optimizer) const;
  /// Runs a function without a lock of the front end's that a call is made under and that others
  /// wait for. Empty: there is none.
  std::function<void(const std::function<void()>&)> without_lock;
  std::vector<std::string> invalidations;  ///< why, in order
  std::string trace_problem;               ///< why the trace could not be written
  /// Notes why, and tells whoever asked for recordings by the environment, once.
  void lose_trace(std::string why);
  bool started = false;       ///< a step was called: nothing more may be tracked
  bool is_on_device = false;  ///< something tracked lay on a CUDA device then
  /// Whether the program captures what this call gives to a CUDA device.
  bool is_being_captured(const std::vector<live::Argument>& arguments) const;
  /// Notes that a step was called; the first time, finds out who runs and begins the ledger.
  void start();
  RunIdentity run;                     ///< since the first call
  std::string trace_path;              ///< Options::trace as this process has it, since then
  std::unique_ptr<CallLedger> ledger;  ///< null: nobody keeps one
  /// What was at `trace_path` when the session began; null where there is no such path.
  std::unique_ptr<EarlierTrace> earlier;
  /// The number after the name that an earlier run's trace has now.
  std::optional<std::uint64_t> earlier_number;
  /// Whether there is a trace, and it is in no other hands.
  bool keeps_recordings() const;
  /// Takes a recording of the step that Options::record asked for into the trace.
  void keep(const trace::Step& step, const trace::Recording& recording);
  std::unique_ptr<KeptRecordings> kept;  ///< null where the trace is not kept
  bool has_room = false;                 ///< what is at `trace_path` may be written over

  /// Calls all declared functions.
  guards::Declared declared() const;
  /// What they gave in the outermost call that is under way: they are called once in it, whatever
  /// steps it contains.
  std::optional<guards::Declared> declared_now;
  /// A call of a step: of the session's outermost, `declared_now` is there while this lives.
  class Call;
  guards::Declared declared_last;  ///< in the newest call, for a trace that is saved after it
  /// Writes their names and values into a recording.
  void describe(const guards::Declared& declared, trace::Recording& recording) const;

  /// Whether the places that a front end declares hold what a plan of this recording can begin
  /// with: a number where it found one, and what it found where that was none.
  bool fits_places(const trace::Recording& recording) const;
  /// Everything recorded so far as a trace; with the bytes of all persistent tensors when
  /// `with_state`.
  trace::Trace to_trace(bool with_state) const;
  /// Writes Options::trace, if there is one. A failure is kept in `trace_problem`: it must not stop
  /// the training.
  void write_trace();
  /// Keeps the trace of an earlier run that did something else, before this run's takes its place.
  /// Throws Error.
  void make_room();
  /// Ends what grows beside the trace while the session lives.
  void finish_trace();
};

class SessionState::Call {
 public:
  explicit Call(SessionState& session);
  ~Call();
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

 private:
  SessionState& session_;
  bool is_outermost_;
};

}  // namespace steptape::session
