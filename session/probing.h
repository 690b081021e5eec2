#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "recorder/recorder.h"
#include "replayer/planner/numbers/bindings.h"
#include "replayer/planner/numbers/infer_bindings.h"
#include "steptape/refusal.h"
#include "trace/model.h"

namespace steptape::session {

/// When a step without a plan is recorded, and when two recordings agree. A recording is compared
/// with those that were entered in the same way, the newest first: past one that parts from it only
/// because the step read another value, as a replay would find out, it may agree with an earlier
/// one. So variants which alternate, by how they are entered or by what they read, do not hide each
/// other. A warm-up is left out. At most 8 attempts in one way that lead to nothing, then a pause
/// of 100, 1,000, ... calls of that way; and of all, where many ways lead to nothing.
class Probing {
 public:
  /// Whether the next call without a plan is to be recorded, one of this way (way_of_entry). Counts
  /// the call.
  bool wants_recording(const std::string& way);

  explicit Probing(replayer::Reads reads) : reads_(reads) {}

  using Plans = std::span<const trace::Recording* const>;
  struct Agreed {
    recorder::Recorded recorded;
    bool with_earlier_run;  ///< and with nothing of this one
    /// What numbers were in the recording that it agrees with, where these may be others.
    std::optional<replayer::Numbers> proved;
  };

  /// Takes a recording of a call of this way. Gives it back, of status kAgreed, when nothing in
  /// it is refused and it agrees with an earlier one, or with a `known` one, of a plan, whose
  /// stream of ops it repeats in another shape or with other numbers; else keeps it. `refusals`
  /// then says what stood against it.
  /// With those of an `earlier` run it agrees in the same way.
  std::optional<Agreed> take(const std::string& way, recorder::Recorded recorded, Plans known,
                             Plans earlier);

  /// Why the newest attempts led to nothing, those of this way or of all; empty when they did or
  /// are still under way.
  const std::vector<Refusal>& refusals(const std::string& way) const;
  /// Pauses, because the plan of an agreed recording was refused.
  void pause(const std::string& way, std::vector<Refusal> refusals);
  /// The same, whatever the way is.
  void pause_all(std::vector<Refusal> refusals);
  /// Never asks for a recording again.
  void stop(std::vector<Refusal> refusals);
  /// Starts afresh, pauses forgotten.
  void restart();
  /// A plan was found for this way: the next pause is short again.
  void succeed(const std::string& way);
  /// One was found that nobody tries.
  void note_untried() { with_all_.attempts = 0; }

 private:
  /// Attempts that led to nothing, and the calls for which none is made.
  struct Patience {
    std::uint32_t attempts = 0;
    std::uint64_t calls_to_skip = 0;
    std::uint64_t pause = 100;
    std::vector<Refusal> refusals = {};
    std::uint64_t last_use = 0;

    bool is_over();
    void give_up(std::vector<Refusal> why);
  };
  struct Kept {
    std::string way;
    recorder::Recorded recorded;
  };
  struct Compared {
    std::optional<Agreed> agreed;
    std::optional<Refusal> refusal;  ///< by the newest
    bool repeats_refusals = false;   ///< of an earlier one
  };

  Patience& patience_with(const std::string& way);
  void note_agreed(const std::string& way);
  void note_nothing(const std::string& way, bool is_clean, bool is_refused_again,
                    std::vector<Refusal> found);
  void note_warm_up(const recorder::Recorded& recorded);
  Compared compare(recorder::Recorded& recorded);
  void keep(const std::string& way, recorder::Recorded recorded);
  void forget(const std::string& way);
  Agreed agreed(recorder::Recorded recorded, std::optional<replayer::Numbers> proved,
                bool with_earlier_run = false);
  struct Parted {
    Refusal refusal;
    bool is_by_reads;  ///< and a replay of either finds out
  };
  /// Finds out what the numbers of `recorded` follow from. Nothing is written down unless the two
  /// agree then.
  std::optional<Parted> difference_from(const recorder::Recorded& previous,
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
  std::vector<Kept> kept_;                    ///< newest last
  std::map<std::string, Patience> patience_;  ///< by way
  Patience with_all_;                         ///< attempts since a plan was found, in any way
  std::uint64_t uses_ = 0;
  std::uint32_t warm_ups_ = 0;  ///< in a row
  bool is_stopped_ = false;
};

}  // namespace steptape::session
