#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "recorder/recorder.h"
#include "session/deferred.h"
#include "session/observe/journal.h"
#include "session/probing.h"
#include "session/variants.h"
#include "steptape/refusal.h"
#include "trace/model.h"

namespace steptape::session {

struct SessionState;

/// The plans of one step: when a call is recorded for one, how recordings become a plan, and which
/// plans are given up.
class Plans {
 public:
  /// All must outlive this. `step`: its name.
  Plans(SessionState& session, Journal& journal, const std::string& step);

  Variants& variants() { return variants_; }
  const Variants& variants() const { return variants_; }

  /// Whether the call that is entered in this way, and that no plan fits, is to be recorded. Counts
  /// the call.
  bool wants_recording(const std::string& way) { return probing_.wants_recording(way); }
  /// Why there is no plan for calls that are entered in this way, as far as it is known.
  const std::vector<Refusal>& refusals(const std::string& way) const {
    return probing_.refusals(way);
  }

  /// Writes down what the numbers of a recording follow from.
  static void bind_numbers(recorder::Recorded& recorded);
  /// Takes the recording of a call that was entered in this way, with `deferred` what it put off.
  /// Whether it agrees with an earlier one, so that there is a new plan.
  bool learn_from(recorder::Recorded recorded, const std::string& way, const Deferred& deferred);
  /// A plan for calls of this way is trusted now.
  void note_trusted(const std::string& way) {
    probing_.succeed(way);
    untrusted_in_a_row_ = 0;
  }
  /// Gives up a plan, for calls that are entered in this way.
  void drop(const Variant& variant, Refusal refusal, const std::string& way);
  /// Refuses the step for a while, however it is entered.
  void refuse(const Refusal& refusal);
  /// From here on the step is not recorded any more.
  void refuse_always(Refusal refusal);
  /// Drops all plans and begins anew.
  void restart();

  /// Warm-up and plans, as StepLife::to_trace.
  std::vector<trace::Recording> to_trace(bool with_state) const;
  /// Of each variant, what its guards ask for in another way than those of the first.
  std::vector<std::string> differences() const;

 private:
  void refuse_collectives(const trace::Recording& recording, std::vector<Refusal>& refusals) const;
  bool make_plan(Probing::Agreed agreed, const std::string& way, const Deferred& deferred);
  bool make_room();
  std::optional<Refusal> plan_for_each_number(const trace::Recording& before,
                                              const recorder::Recorded& recorded) const;
  void describe_proofs(const Variant& variant, trace::Recording& recording) const;
  void refuse(std::vector<Refusal> refusals, const std::string& way);

  SessionState& session_;
  Journal& journal_;
  const std::string& step_;
  Probing probing_;
  std::optional<trace::Recording> warm_up_;
  Variants variants_;
  std::uint64_t variants_made_ = 0;
  std::uint32_t untrusted_in_a_row_ = 0;  ///< plans since one was trusted
  bool may_start_warm_ = true;            ///< from the trace of an earlier run
};

}  // namespace steptape::session
