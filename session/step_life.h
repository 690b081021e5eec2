#pragma once

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "live/argument.h"
#include "recorder/recorder.h"
#include "session/deferred.h"
#include "session/exclusive_use.h"
#include "session/keep/record_schedule.h"
#include "session/misfits.h"
#include "session/observe/journal.h"
#include "session/probing.h"
#include "session/variants.h"
#include "session/verify/verification.h"
#include "steptape/error.h"
#include "steptape/session.h"
#include "trace/model.h"

namespace steptape::session {

struct SessionState;

/// One step's way from warm-up over probes and trial to replay, and back to the eager step whenever
/// a guard fails (the design's "a step's life"). The one place that decides what a call does.
class StepLife final : public StepCore, public std::enable_shared_from_this<StepLife> {
 public:
  using Eager = std::function<pack::Results()>;

  /// `is_update`: made by Session::update. Such a step never throws for being refused: the step
  /// before it has run.
  StepLife(SessionState& session, std::string name, std::string place, bool is_update = false);

  std::optional<pack::Results> call(std::vector<pack::Leaf> leaves, const Eager& eager) override {
    return call(std::move(leaves), eager, [](const pack::Results&) {});
  }
  /// `on_replay` gets what a replay gives, before observers see it, who may throw.
  std::optional<pack::Results> call(std::vector<pack::Leaf> leaves, const Eager& eager,
                                    const std::function<void(const pack::Results&)>& on_replay);
  Stats stats() const override;
  std::string explain() const override;

  const std::string& name() const { return name_; }
  /// The session is going away; a later call is an error.
  void orphan() { session_ = nullptr; }
  /// Drops all plans; `why` is for the log.
  void invalidate(const std::string& why);
  /// From here on the step is not recorded any more.
  void refuse_always(Refusal refusal);
  /// `with_state`: for a player, which goes on from what the program holds now. A plan that
  /// does not fit this is not trusted there.
  trace::Step to_trace(bool with_state) const;
  /// While a plan is compared with the eager step: what the front end noted of the call that the
  /// plan was made from, else null.
  const void* note_of_tried() const { return tried_.get(); }
  /// Of each variant, what its guards ask for in another way than those of the first.
  std::vector<std::string> differences() const;

 private:
  std::optional<pack::Results> call_alone(const std::vector<live::Argument>& arguments,
                                          const guards::Declared& declared, const Eager& eager);
  struct Run {
    bool is_done;  ///< false: nothing happened, everything is as before
    std::optional<pack::Results> results;
  };
  /// What a call was entered with.
  struct Given {
    const std::vector<live::Argument>& arguments;
    const guards::Declared& declared;
  };
  Run run(Variant& variant, const Given& given, const Eager& eager);
  void check_alive();
  void settle_gradients() const;
  void note_moves(Variant& variant);
  bool adapt(Variant& variant);
  void note_change(Variant& variant, const replayer::Changed& changed);
  bool run_trial(Variant& variant, const Given& given, const Eager& eager);
  void judge_trial(Variant& variant, Verified& verified);
  bool run_audit(Variant& variant, const Given& given, const Eager& eager);
  void judge_audit(Variant& variant, Verified& verified);
  void prove(Variant& variant, const Given& given, const Eager& eager,
             const replayer::Unproved* unproved = nullptr);
  bool judge(Variant& variant, const trace::Recording& proof, const trace::Difference& parted,
             const replayer::Unproved* unproved);
  static bool pin(Variant& variant, const replayer::Unproved* unproved);
  static void pin_others(Variant& variant, Verified& verified);
  static void note_proved(Variant& variant, const Verified& verified);
  bool is_open(Variant& variant, const Verified& verified);
  bool refuses_chances(const Variant& variant);
  Verified verify(Variant& variant, const Given& given, const Eager& eager);
  /// Runs the plan on what the guards found.
  replayer::Outcome execute(Variant& variant);
  pack::Results replay(Variant& variant, const std::vector<live::Argument>& arguments);
  /// Of the optimizers that it steps.
  std::vector<std::string> paths_of(const Deferred& deferred) const;
  /// The one place where the user's function runs.
  recorder::Returned run_function(const Eager& eager, InsideStep::Depth depth);
  void run_eagerly(const Eager& eager);
  /// For the ledger, and for recordings that are asked for by what calls return.
  void note_results(const pack::Results& results);
  /// How closely the recording that begins looks.
  recorder::Look look() const;
  /// The number of the call that is under way, over the whole run.
  std::uint64_t call_of_run() const;
  void record_or_run(const Given& given, const Eager& eager);
  void record(const Given& given, const Eager& eager);
  /// None where the step could not be recorded, or nothing of it is to be kept: it has run.
  std::optional<recorder::Recorded> run_recorded(const Given& given, const Eager& eager);
  /// `recorded` is written down with what its numbers follow from.
  void bind_numbers(recorder::Recorded& recorded);
  void learn_from(recorder::Recorded recorded);
  void make_plan(Probing::Agreed agreed);
  void drop(const Variant& variant, Refusal refusal);
  void drop_trusted(const Variant& variant, Refusal refusal);
  bool make_room();
  void run_deferred();
  void note_verified(Variant& variant);
  void keep_or_put_back();
  void restart();
  void refuse(std::vector<Refusal> refusals);
  void refuse_all(const Refusal& refusal);

  SessionState* session_;
  std::string name_;
  std::string place_;
  RecordSchedule schedule_;
  bool is_asked_for_ = false;  ///< the recording of the call that is under way, by Options::record
  Probing probing_;
  std::string way_;  ///< of the call that is under way, where it does not just replay
  std::optional<trace::Recording> warm_up_;
  Variants variants_;
  guards::Entry entry_;          ///< of the call that is under way
  Misfits misfits_;              ///< of the newest call
  bool must_restart_ = false;    ///< invalidate() was called inside the call that is under way
  Variant* verified_ = nullptr;  ///< by the call that is under way: its state is to be kept
  /// To be put back when the call that is under way is over.
  std::shared_ptr<const Checkpoint> to_put_back_;
  std::optional<Error> to_throw_;      ///< a failed audit, when the call that is under way is over
  bool is_update_;                     ///< of an optimizer, after a step: part of the user's call
  Deferred deferred_;                  ///< of the call that is under way
  std::shared_ptr<const void> tried_;  ///< what a front end noted of the plan on trial
  Journal journal_;
  std::uint64_t variants_made_ = 0;
  bool may_start_warm_ = true;  ///< from the trace of an earlier run
};

/// The text of Step::explain. `differences` says of each variant what tells it from the first one,
/// or nothing.
std::string explain(const std::string& name, const std::string& place, const Stats& stats,
                    std::span<const std::string> differences = {});

}  // namespace steptape::session
