#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "session/call.h"
#include "session/step_context.h"
#include "steptape/session.h"
#include "trace/model.h"

namespace steptape::session {

struct SessionState;

/// One step's way from warm-up over probes and trial to replay, and back to the eager step whenever
/// a guard fails (the design's "a step's life"). What a call does is Call's to decide; here are its
/// outer conditions: nobody else uses the objects, declared values are called once.
class StepLife final : public StepCore, public std::enable_shared_from_this<StepLife> {
 public:
  using Eager = Call::Eager;

  /// `is_update`: StepContext::is_update.
  StepLife(SessionState& session, std::string name, std::string place, bool is_update = false);

  std::optional<pack::Results> call(std::vector<pack::Leaf> leaves, const Eager& eager) override {
    return call(std::move(leaves), eager, [](const pack::Results&) {});
  }
  /// `on_replay` gets what a replay gives, before observers see it, who may throw.
  std::optional<pack::Results> call(std::vector<pack::Leaf> leaves, const Eager& eager,
                                    const std::function<void(const pack::Results&)>& on_replay);
  Stats stats() const override;
  std::string explain() const override;

  const std::string& name() const { return step_.name; }
  /// The session is going away; a later call is an error.
  void orphan() { is_orphan_ = true; }
  /// Drops all plans; `why` is for the log.
  void invalidate(const std::string& why);
  /// From here on the step is not recorded any more.
  void refuse_always(Refusal refusal) { step_.plans.refuse_always(std::move(refusal)); }
  /// `with_state`: for a player, which goes on from what the program holds now. A plan that
  /// does not fit this is not trusted there.
  trace::Step to_trace(bool with_state) const;
  /// Call::note_of_tried of the call under way, or null.
  const void* note_of_tried() const;

 private:
  void call_inside(std::vector<pack::Leaf> leaves, const Eager& eager);
  void check_alive();

  StepContext step_;
  bool is_orphan_ = false;
  bool must_restart_ = false;      ///< invalidate() was called inside the call that is under way
  const Call* current_ = nullptr;  ///< under way, the innermost
};

}  // namespace steptape::session
