#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "replayer/runtime/number_proofs.h"
#include "steptape/stats.h"
#include "trace/model.h"

/// What a caller asks of one run of a plan, and of no other.
namespace steptape::replayer {

/// What a run is told of its numbers. An argument, not a variable that both sides look at: the CUDA
/// backend is a library of its own, with its own copy of every variable.
struct RunNumbers {
  /// One for each of Recording::leaves; those of host reads come from the run itself.
  std::span<const double> leaves = {};
  /// At whose values the run goes on; null: at any.
  const NumberProofs* proofs = nullptr;
  /// Of them only those that are pinned.
  bool holds_pinned_only = false;

  /// What holds this number, or null.
  const NumberProofs* proofs_of(NumberOfRun number) const {
    const bool is_held = proofs != nullptr && (!holds_pinned_only || proofs->is_pinned(number));
    return is_held ? proofs : nullptr;
  }
};

/// What an op left elsewhere, which it is to leave in a run too, whatever it does there: an op that
/// leaves other bits each time, so that what follows from it can be compared bit for bit.
struct Override {
  trace::Index op;               ///< position in the recording; Executor::set_apart was told of it
  std::vector<at::Tensor> left;  ///< see live::left_tensors
  /// How far what it left by itself was from that, at most (live::relative_difference); none: the
  /// run did not come by the op.
  std::optional<double> difference = {};
};

/// What is looked at while a plan runs. What it names must outlive the run.
struct Inspection {
  /// What each op leaves (live::op_digest), by its position in the recording; ops that are no
  /// calls, and ops after one that threw, leave none.
  std::vector<std::optional<trace::Digest>>* digests = nullptr;
  /// Where digests are asked for: what these ops leave.
  std::span<Override> overrides = {};
  /// What each stage takes, where the run returns.
  std::vector<StageTime>* times = nullptr;
  /// What the run leaves is compared with the eager step: it may do what none did before, where
  /// others throw Uncompared (ExecutorOptions::is_compared).
  bool is_compared = false;
};

struct Run {
  /// Of each of Executor::bound() the first byte, with as many bytes and the same address modulo 64
  /// as the recording says, or one that the plan was adapted to.
  std::span<void* const> memory;
  RunNumbers numbers = {};
  /// Called once in mid-run, when nothing but running out of memory can still stop the run; what it
  /// releases is not put back.
  std::function<void()> decided = {};
  Inspection inspection = {};
};

}  // namespace steptape::replayer
