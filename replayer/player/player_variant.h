#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "guards/input_guard.h"
#include "live/ambient.h"
#include "replayer/cpu/executor.h"
#include "replayer/player/player_state.h"
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

  /// The tensors that the caller passes, with the numbers that were set or recorded between them.
  std::vector<live::Argument> arguments_of(const std::vector<at::Tensor>& inputs) const;
  Verdict check(std::span<const live::Argument> arguments);
  /// Runs the plan; `check` has just held for these arguments. When an op throws, all is as it was.
  Results run(std::span<const live::Argument> arguments);

  /// Variants of one step differ in training flags: the saved flags, or those that were set,
  /// decide.
  void check_training() { checks_training_ = true; }

  const trace::Recording& recording() const { return *recording_; }
  PlanStats stats() const;

 private:
  void find_memory();
  void find_numbers();
  Verdict check_numbers();
  /// Whether a number of the player is what the recording had; holds where the player has none.
  Verdict check_fact(const std::string& name, const trace::Value& expected) const;
  Verdict check_ambient();
  void settle_gradients(const cpu::Outcome& outcome);
  at::Tensor result_of(std::size_t index, const cpu::Outcome& outcome,
                       std::span<const live::Argument> arguments) const;

  std::shared_ptr<const trace::Recording> recording_;
  PlayerState& state_;
  std::string step_;
  double plan_us_ = 0;
  cpu::Executor executor_;
  std::unique_ptr<guards::InputGuard> inputs_;
  std::vector<c10::Storage> outside_;  ///< by position in the executor's bound list; null elsewhere
  std::vector<void*> memory_;
  std::vector<double> leaves_;
  bool checks_training_ = false;
  bool ambient_known_ = false;
  live::Ambient ambient_{};  ///< the newest that was found to agree
  std::uint64_t replays_ = 0;
};

}  // namespace steptape::replayer
