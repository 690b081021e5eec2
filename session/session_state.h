#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "live/objects.h"
#include "live/values.h"
#include "replayer/runtime/backends.h"
#include "session/declarations.h"
#include "session/keep/session_trace.h"
#include "session/observe/account.h"
#include "session/observe/counter_block.h"
#include "session/observe/log.h"
#include "steptape/options.h"

namespace steptape::session {

class StepLife;

/// What the steps of one session share.
struct SessionState {
  SessionState();
  SessionState(const SessionState&) = delete;
  SessionState& operator=(const SessionState&) = delete;
  /// Takes over the options, with what STEPTAPE_RECORD adds to them, and opens the log. Throws
  /// Error (invalid_argument).
  void set_options(Options options);
  /// Notes that a step was called; the first time, begins the trace and its ledger.
  void start();
  /// Whether the program captures what this call gives to a CUDA device.
  bool is_being_captured(const std::vector<live::Argument>& arguments) const;
  /// The step "optimizer.step()" of an optimizer that a step has put off; made when first needed.
  /// An optimizer that is not tracked or not known is stepped as it is.
  void step_optimizer(torch::optim::Optimizer& optimizer);
  /// The path of a tracked optimizer, or "".
  std::string path_of(const torch::optim::Optimizer& optimizer) const;

  std::uint64_t number;  ///< in the process, counted from 1
  Options options;
  bool is_asked_by_environment = false;  ///< for recordings: STEPTAPE_RECORD
  /// The front end's, which outlives this; that of C++ where it has none of its own.
  const Wording* wording;
  Log log;
  CounterBlock counters;
  live::Objects objects;
  Declarations declarations;
  std::vector<std::shared_ptr<StepLife>> steps;
  SessionTrace trace{*this};
  /// What all plans of the session share on a device.
  std::shared_ptr<replayer::SharedPools> device_pools = std::make_shared<replayer::SharedPools>();
  /// Runs a function without a lock of the front end's that a call is made under and that others
  /// wait for. Empty: there is none.
  std::function<void(const std::function<void()>&)> without_lock;
  std::vector<std::string> invalidations;  ///< why, in order
  bool started = false;                    ///< a step was called: nothing more may be tracked
  bool is_on_device = false;               ///< something tracked lay on a CUDA device then
};

}  // namespace steptape::session
