#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "recorder/recorder.h"
#include "session/deferred.h"
#include "session/exclusive_use.h"
#include "session/step_context.h"
#include "session/variants.h"
#include "session/verify/judge.h"
#include "session/verify/verification.h"
#include "steptape/pack.h"

namespace steptape::session {

/// One call of a step: replays the plan whose guards hold, tries or audits it, or records or runs
/// the eager step. Lives as long as the call.
class Call {
 public:
  using Eager = std::function<pack::Results()>;

  /// All must outlive this.
  Call(StepContext& step, const Given& given, const Eager& eager)
      : step_(step), given_(given), eager_(eager), judge_(step, given, step.entry, mismatches_) {}

  /// Results of a replay; none where the eager step has run, whose results the caller has.
  std::optional<pack::Results> run();
  /// Does what the step has put off, after `on_replay` has seen the results of a replay, and what
  /// is due to a plan that was compared. What they throw passes through.
  void end(const std::optional<pack::Results>& results,
           const std::function<void(const pack::Results&)>& on_replay);

  /// While a plan is compared with the eager step: what the front end noted of the call that the
  /// plan was made from, else null.
  const void* note_of_tried() const { return tried_.get(); }

 private:
  struct Attempt {
    bool is_done = true;  ///< false: nothing happened, everything is as before
    std::optional<pack::Results> results = {};
    std::optional<replayer::Unproved> unproved = {};  ///< where that is why
  };
  /// A plan whose guards hold, and a number at whose value it was not proved; none where the guards
  /// have told of one.
  struct Unsure {
    Variant* variant;
    std::optional<replayer::Unproved> unproved;
  };
  Attempt attempt(Variant& variant);
  Attempt attempt_replay(Variant& variant);
  Attempt compare(Variant& variant);
  pack::Results replay(Variant& variant);
  replayer::Outcome execute(Variant& variant);
  void adapt(Variant& variant);
  Verified verify(Variant& variant);
  void prove(std::span<const Unsure> unsure);
  void record();
  std::optional<recorder::Recorded> run_recorded();
  void run_eagerly();
  recorder::Returned run_function(InsideStep::Depth depth);
  void settle_gradients() const;
  std::vector<std::string> paths_of_updates() const;
  recorder::Detail detail();
  const std::shared_ptr<live::Exchanges>& exchanges();
  std::uint64_t call_of_run() const;

  StepContext& step_;
  const Given& given_;
  const Eager& eager_;
  bool is_asked_for_ = false;  ///< a recording of it, by Options::record
  Mismatches mismatches_;
  Judge judge_;
  Deferred deferred_;                           ///< what it puts off until it is over
  std::shared_ptr<live::Exchanges> exchanges_;  ///< what it has issued; null: nobody asked yet
  std::shared_ptr<const void> tried_;           ///< what a front end noted of the plan on trial
};

}  // namespace steptape::session
