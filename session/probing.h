#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "recorder/recorder.h"
#include "replayer/numbers/explain.h"
#include "replayer/numbers/numbers_at.h"
#include "steptape/refusal.h"
#include "trace/model.h"

namespace steptape::session {

/// When a step without a plan is recorded, and when two recordings agree. Recordings are compared
/// with the newest one that was entered in the same way, so that variants which alternate
/// (micro-steps and the step that applies them) do not hide each other. A warm-up is left out; at
/// most 8 attempts that lead to nothing, then a pause of 100, 1,000, ... calls.
class Probing {
 public:
  /// Whether the next call without a plan is to be recorded. Counts the call.
  bool wants_recording();

  explicit Probing(replayer::Reads reads) : reads_(reads) {}

  using Plans = std::span<const trace::Recording* const>;
  struct Agreed {
    recorder::Recorded recorded;
    bool with_earlier_run;  ///< and with nothing of this one
    /// What numbers were in the recording that it agrees with, where these may be others.
    std::optional<replayer::Numbers> proved;
  };

  /// Takes a recording. Gives it back, of standing kAgreed, when nothing in it is refused and it
  /// agrees with the one before, or with a `known` one, of a plan, whose stream of ops it repeats
  /// in another shape or with other numbers; else keeps it. `refusals()` then says what stood
  /// against it.
  /// With those of an `earlier` run it agrees in the same way.
  std::optional<Agreed> take(recorder::Recorded recorded, Plans known, Plans earlier);

  /// Why the newest attempts led to nothing; empty when they did or are still under way.
  const std::vector<Refusal>& refusals() const { return refusals_; }
  /// Pauses, because the plan of an agreed recording was refused.
  void pause(std::vector<Refusal> refusals);
  /// Never asks for a recording again.
  void stop(std::vector<Refusal> refusals);
  /// Starts afresh, pauses forgotten.
  void restart();
  /// A plan was found: the next pause is short again.
  void succeed();

 private:
  void give_up();
  Agreed agreed(recorder::Recorded recorded, std::optional<replayer::Numbers> proved,
                bool with_earlier_run = false);
  /// Finds out what the numbers of `recorded` follow from. Nothing is written down unless the two
  /// agree then.
  std::optional<Refusal> difference_from(const recorder::Recorded& previous,
                                         recorder::Recorded& recorded) const;
  void explain(const trace::Recording& before, const recorder::Recorded& recorded,
               trace::Recording& now) const;
  struct Repeated {
    std::optional<replayer::Numbers> proved;
  };
  std::optional<Repeated> repeats(const trace::Recording& known,
                                  recorder::Recorded& recorded) const;
  std::optional<Repeated> repeats_one_of(Plans plans, recorder::Recorded& recorded) const;

  replayer::Reads reads_;
  std::vector<recorder::Recorded> previous_;  ///< newest last; one for each way of entry
  std::vector<Refusal> refusals_;
  std::uint32_t attempts_ = 0;
  std::uint32_t warm_ups_ = 0;  ///< in a row
  std::uint64_t calls_to_skip_ = 0;
  std::uint64_t pause_ = 100;
  bool is_stopped_ = false;
};

}  // namespace steptape::session
