#pragma once

#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "guards/input_guard.h"
#include "guards/overlap_guard.h"
#include "guards/window_guard.h"
#include "live/ambient.h"
#include "live/stopwatch.h"
#include "replayer/player/index_bounds.h"
#include "replayer/player/player_state.h"
#include "replayer/runtime/executor.h"
#include "replayer/runtime/number_proofs.h"
#include "steptape/stats.h"
#include "steptape/verdict.h"

namespace steptape::replayer {

/// What one run gives, flat.
struct Results {
  std::vector<at::Tensor> tensors;
  std::vector<double> numbers;
};

/// One trusted recording of a trace, planned over a player's memory.
class PlayerVariant {
 public:
  /// Plans it. Throws Error (unsupported) that names state which the trace does not hold.
  /// `step` is its name: a number that the caller passes is kept as "train.inputs[2]".
  PlayerVariant(std::shared_ptr<const trace::Recording> recording, const std::string& step,
                PlayerState& state);

  /// The player has all variants: this one finds its numbers among those that they declare.
  /// Variants of a step that differ in training flags check the flags that were saved; all check
  /// those that were set since. Where they take arguments of other structures (`are_alike`), what
  /// was saved as a number of one's says nothing of the others'.
  void join(bool checks_training, bool are_alike);
  /// The inputs that are texts, such as what a front end says of the arguments as a whole; none of
  /// what stands in places.
  std::vector<std::string> structures() const;

  /// Whether these have the recorded number, dtypes and geometries: asked before `check`, which
  /// puts into words what differs.
  bool takes(std::span<const at::Tensor> inputs) const;
  /// The tensors that the caller passes, where the step takes them, with the numbers that were set
  /// or recorded between them.
  std::span<const live::Argument> arguments_of(std::span<const at::Tensor> inputs);
  /// The last ones.
  std::span<const live::Argument> arguments() const { return arguments_; }
  /// Whether what stands in places now is of the kind, and in the layout, that it begins with.
  Verdict check_places() const;
  Verdict check(std::span<const live::Argument> arguments);
  /// Runs the plan; `check` has just held for these arguments. When an op throws, all is as it was.
  /// `times`, where it is asked for, gets what each part takes.
  Results run(std::span<const live::Argument> arguments, std::vector<StageTime>* times = nullptr);
  /// The same into memory of the caller's, which `require_fits` has found good.
  void run_into(std::span<const live::Argument> arguments, std::span<const at::Tensor> results,
                std::vector<double>& numbers);
  /// Throws Error (invalid_argument) where these cannot take the results; after `check`.
  void require_fits(std::span<const at::Tensor> results) const;
  /// The arguments of the last call are let go of.
  void forget_arguments();

  const std::shared_ptr<const trace::Recording>& shared_recording() const { return recording_; }
  const trace::Recording& recording() const { return *recording_; }
  /// Whether a run writes anything that stays, but for generators.
  bool writes_state() const { return writes_state_; }
  /// Paths of the player's memory that runs read or write, gradients apart.
  std::vector<std::string> state_paths() const;
  std::uint64_t constant_bytes() const;
  PlanStats stats() const;

 private:
  void find_memory();
  /// The buffer of the state in whose place this memory comes.
  trace::BufferId entry_of(const trace::ExitGradient& given) const;
  void bind_state();
  Verdict follow_state();
  const trace::Buffer& buffer_at(std::size_t position) const {
    return recording_->buffers[executor_->bound()[position]];
  }
  void find_carried();
  bool is_of_kind(const trace::HeldInput& place) const;
  bool is_held(const PlayerState::Carried& found) const;
  void join_carried();
  void find_uses();
  /// Whether it leaves tensors where it finds them again.
  bool carries() const {
    return std::ranges::any_of(recording_->held,
                               [](const trace::HeldPlace& held) {
                                 return held.rule == trace::HeldPlace::Rule::kCarried;
                               }) ||
           std::ranges::any_of(carried_in_, [](const std::string& path) { return !path.empty(); });
  }
  std::size_t result_count() const { return recording_->results.size() - recording_->observed; }
  /// Whether the step leaves a number at the place of this host value or hyperparameter.
  bool becomes(const std::string& path) const;
  /// The state after a run that returned these numbers.
  void move_on(const std::vector<double>& numbers);
  template <typename Refuse>
  void require_apart(std::size_t index, std::span<const at::Tensor> results,
                     const Refuse& refuse) const;
  void* copy_outside(const trace::Buffer& buffer);
  at::Tensor brought(const trace::Input& input, const at::Tensor& given) const;
  /// Tensors that the step leaves where it finds them again: what it left last.
  at::Tensor carried(const trace::HeldInput& place) const;
  void carry_on(const Outcome& outcome, std::span<const live::Argument> arguments);
  void find_numbers();
  Verdict check_facts();
  Verdict check_hooks(std::span<const live::Argument> arguments) const;
  Verdict check_ambient();
  void settle_gradients(const Outcome& outcome, std::span<const live::Argument> arguments);
  at::Tensor result_of(std::size_t index, const Outcome& outcome,
                       std::span<const live::Argument> arguments) const;

  std::shared_ptr<const trace::Recording> recording_;
  PlayerState& state_;
  std::string step_;
  live::Stopwatch planning_;
  double plan_us_ = 0;
  std::unique_ptr<Executor> executor_;
  guards::InputGuard inputs_;
  guards::WindowGuard windows_;
  guards::OverlapGuard overlap_;
  IndexBounds bounds_;
  std::vector<c10::Storage> outside_;
  /// By position in the executor's bound list: memory that stays as long as the player; null for
  /// inputs and gradients.
  std::vector<void*> lasting_;
  /// A buffer that is state's.
  struct Held {
    std::size_t position;
    c10::StorageImpl* storage = nullptr;  ///< since `bound_version_`
  };
  std::vector<Held> held_;
  std::uint64_t bound_version_ = 0;     ///< of state, when their addresses were taken
  std::vector<std::size_t> gradients_;  ///< positions of the buffers that come and go
  /// Of Recording::exit_gradients, and the buffer of the state that it takes the place of.
  std::vector<std::pair<std::size_t, trace::BufferId>> given_;
  /// By input, the path of the memory that it is carried on in; "" for one that the caller passes.
  std::vector<std::string> carried_in_;
  bool uses_gradients_ = false;  ///< reads them, or leaves other ones
  bool writes_state_ = false;
  std::vector<live::Argument> arguments_;
  std::vector<void*> memory_;
  std::vector<double> leaves_;
  /// A number of the player that must be what the recording had.
  struct Fact {
    GuardKind kind;
    std::string name;
    trace::Value expected;
    const trace::Value* found;
    bool once_set;  ///< what was saved does not count, what the user set does
  };
  std::vector<Fact> facts_;
  std::vector<std::string> lookups_;                                  ///< names of recorded ones
  std::vector<std::pair<std::size_t, const trace::Value*>> numbers_;  ///< by leaf
  NumberProofs proofs_;                                ///< no run can prove the plan at others
  std::vector<const trace::Value*> argument_numbers_;  ///< by input; null for what is none
  std::vector<std::pair<trace::Value*, std::int64_t>> advances_;
  /// To constants that stand in the step.
  std::vector<std::pair<trace::Value*, trace::Value>> resets_;
  std::vector<std::pair<std::size_t, trace::Value*>> becoming_;  ///< by position of a number
  bool ambient_known_ = false;
  live::Ambient ambient_{};   ///< the newest that was found to agree
  std::uint64_t checks_ = 0;  ///< each may find memory elsewhere
  std::uint64_t replays_ = 0;
};

/// Throws Error (unsupported) where none of a step's variants begins with what stands in places.
void require_beginning(const std::vector<std::unique_ptr<PlayerVariant>>& variants);

}  // namespace steptape::replayer
