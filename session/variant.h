#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "guards/guard_set.h"
#include "recorder/recorder.h"
#include "replayer/runtime/executor.h"
#include "replayer/runtime/number_proofs.h"
#include "session/deferred.h"
#include "session/step_outputs.h"
#include "session/verify/checkpoint.h"
#include "steptape/stats.h"
#include "trace/model.h"

namespace steptape::session {

/// Draws which replays are audited: with probability 1/2, 1/4, ... down to `rate`. At random, since
/// any fixed period aliases with periods of the user's own (an accumulation over 32 steps is never
/// met by audits at 10, 100, 1,000). Its generator is its own: torch's is part of what is replayed.
class AuditSchedule {
 public:
  AuditSchedule(double rate, std::uint64_t seed) : rate_(rate), random_(seed) {}
  bool draw();

 private:
  double rate_;
  double probability_ = 1;
  std::mt19937_64 random_;
};

/// An op that leaves other bits each time it runs on the same inputs, or may do so: in a trial or
/// an audit it left others than in the plan. It is run again beside the eager step, and from what
/// it left there the rest of the plan is compared bit for bit.
struct SuspectOp {
  trace::Index op;        ///< position in the recording
  bool is_known = false;  ///< it has left other bits than its own
  /// Of all times it was run again, and of all runs of the plan; see live::relative_difference.
  double spread = 0;
  double largest_difference = 0;
};

/// A replay may differ from the eager step in such an op by so many times what it differs from
/// itself: what was seen of that is a sample.
inline constexpr double kMostSpreads = 8;

struct SessionState;

/// One specialization of a step: a recording, its plan, and the guards under which it may run.
struct Variant {
  std::uint64_t number;  ///< the variants of a step are counted from 0
  std::shared_ptr<trace::Recording> recording;
  std::unique_ptr<replayer::Executor> executor;
  std::unique_ptr<guards::GuardSet> guards;
  std::unique_ptr<StepOutputs> outputs;
  AuditSchedule audits;
  replayer::NumberProofs number_proofs;
  bool trusted = false;
  bool is_warm_start = false;  ///< one probe agreed with a plan of an earlier run
  double plan_us = 0;
  std::uint64_t replays = 0;
  std::uint64_t rebinds = 0;   ///< calls that found tracked tensors in other memory
  std::uint64_t last_use = 0;  ///< the call of the step that ran it last, counted
  /// The call of the step, counted from 1, in which its guards held last and nothing in its run
  /// spoke against that; 0: there was none.
  std::uint64_t last_held = 0;
  std::uint64_t changes = 0;  ///< runs that were undone in the middle, because something differed
  /// Not tried before this call: a trial was undone so, and another recording may fit better.
  std::uint64_t resumes_at = 0;
  std::chrono::nanoseconds last_run{0};  ///< how long the newest replay took, if that is looked at
  std::vector<SuspectOp> suspects = {};  ///< ops that leave other bits each time, or may
  /// The audit that failed and is looked into: the next trial says whether it was by chance.
  std::optional<Refusal> in_doubt = {};
  Deferred deferred = {};  ///< of the newest call that ran the function
  /// OnDivergence::kRestore: the session's state after the newest call that verified this.
  std::shared_ptr<const Checkpoint> verified_state = nullptr;

  /// The plan was compared with the eager step scalar by scalar, at these numbers.
  void prove(const replayer::Numbers& numbers);

  /// Takes `op` for one that may leave other bits each time. False where the plan cannot be
  /// compared without it, or it was taken for one before.
  bool suspect(trace::Index op);
  PlanStats stats() const;
};

/// Plans `recorded` as the session's options say and makes its guards from the live objects as they
/// are now. `number` counts the variants of a step: each draws its own audits. Throws what planning
/// and allocation throw.
std::unique_ptr<Variant> make_variant(recorder::Recorded recorded, SessionState& session,
                                      std::uint64_t number);

}  // namespace steptape::session
