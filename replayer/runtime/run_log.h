#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>

#include <functional>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "live/collectives.h"
#include "replayer/runtime/call.h"
#include "replayer/runtime/memory.h"
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
  /// By which collectives are issued, or served; null: the plan has none.
  live::Exchanges* exchanges = nullptr;
  Inspection inspection = {};
};

/// Keeps what is looked at in a run.
class RunLog {
 public:
  /// Begins a run of so many ops, which `end` ends.
  void begin(const Inspection& inspection, std::size_t ops);
  void end() { inspection_ = {}; }
  bool wants_digests() const { return inspection_.digests != nullptr; }
  bool wants_times() const { return inspection_.times != nullptr; }
  bool is_compared() const { return inspection_.is_compared; }

  /// The calls of a stage were done, and what they left has not been taken over; `stack` is what
  /// the last of them left, where the dispatcher did it.
  void add_digests(std::span<const Call> stage, const Memory& memory, torch::jit::Stack& stack);
  void add_time(std::span<const Call> stage, std::uint64_t ns);
  void add_time(StageTime time) { inspection_.times->push_back(std::move(time)); }

 private:
  void add_digest(const Call& call, const torch::jit::Stack& stack);
  void override_outputs(const Call& call, const torch::jit::Stack& stack);

  Inspection inspection_;
};

/// Why no kernel does the call, by operator: "aten::mm: no kernel for this operator"; empty: one
/// does.
std::string reason_of(const Call& call);

}  // namespace steptape::replayer
