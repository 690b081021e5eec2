#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "guards/guard_set.h"
#include "live/values.h"
#include "recorder/recorder.h"
#include "replayer/runtime/executor.h"

namespace steptape::session {

/// Makes what a user can see after a replay what the eager step would have left: `.grad` of every
/// parameter, version counters of everything written, results that are the user's alone.
class StepOutputs {
 public:
  /// Whether every result lies in memory that StepOutputs can hand out; if not, the path of the
  /// first that does not.
  static std::string unreachable_result(const trace::Recording& recording,
                                        const replayer::Executor& executor,
                                        const guards::GuardSet& guards);

  /// `recorded` says which results are objects that the caller has already, how far version
  /// counters move, and which gradients become other objects.
  StepOutputs(const trace::Recording& recording, const replayer::Executor& executor,
              const guards::GuardSet& guards, const recorder::Recorded& recorded);

  /// Lets go of gradients that the step replaces and that no op of the plan touches, as
  /// `zero_grad` does at the start of an eager step: their memory serves the new ones.
  void drop_gradients() const;

  /// Whether the step reads or keeps gradients that are there when it is called.
  bool uses_gradients_at_entry() const { return uses_gradients_at_entry_; }

  /// All memory of tracked tensors but that of gradients so dropped, to hold on to.
  std::vector<c10::Storage> kept_memory() const;

  /// Of tensors on a device that the step gives other memory: what they have before it.
  std::vector<at::Tensor> memory_at_entry() const;
  /// After an eager step: has them in that memory again, where nobody can tell, since the graphs of
  /// a plan know it by its address.
  void return_memory(const std::vector<at::Tensor>& at_entry) const;

  /// By result, the gradient in whose memory it lies, as it is before the replay: gradients are
  /// other tensors in every call. Empty when no result lies in one.
  std::vector<at::Tensor> gradients_at_entry() const;

  /// Results of the replay, in order; those that are observed last. One that the eager step leaves
  /// with a graph that backward has consumed requires grad, too, and refuses another backward.
  std::vector<at::Tensor> commit(replayer::Outcome outcome,
                                 std::span<const live::Argument> arguments,
                                 const std::vector<at::Tensor>& gradients_at_entry) const;

 private:
  /// How far a version counter moves.
  struct Move {
    std::uint32_t times = 0;
    bool may_share = false;  ///< the counter, with another tensor that moves it
  };
  /// Whose gradient it is.
  struct Owner {
    bool is_argument;
    std::size_t position;  ///< among the arguments, or in Recording::tracked
  };
  /// What happens to one at the end of each step; the others stay as they are.
  struct Gradient {
    std::size_t at;  ///< in Recording::exit_gradients
    Owner owner;
    /// Another tensor over memory of its own, over that which it had, or the one that it was.
    enum class Exit { kNone, kNew, kRenewed, kInPlace } exit;
    trace::TensorId entry = trace::kNoTensor;  ///< what it is before the step
    std::optional<std::string> node = {};      ///< Recorded::gradient_nodes
    std::optional<Owner> same = {};            ///< which has this very tensor
    Move move = {};
    bool is_read = false;    ///< by an op of the plan, or by what the user gets
    bool is_memory = false;  ///< of the owner itself
    bool is_dropped() const {
      const bool ends = exit == Exit::kNone || exit == Exit::kNew;
      return ends && !is_read && !owner.is_argument && !is_memory;
    }
  };
  struct Result {
    enum class Source { kPlan, kInput, kTracked, kGradient } source = Source::kPlan;
    std::size_t input = 0;    ///< the argument in whose memory it lies
    std::size_t tracked = 0;  ///< the tensor of Recording::tracked in whose memory it lies
    trace::TensorId tensor = trace::kNoTensor;
    trace::TensorId base = trace::kNoTensor;  ///< what the input or live tensor is in the recording
    Owner owner = {};                         ///< where it is the very object of a gradient
  };

  /// Those of tensors that may share a counter, as they are before it moves, in the order in which
  /// `commit` moves them.
  std::vector<std::uint32_t> shared_versions(std::span<const live::Argument> arguments) const;
  Owner owner_of(std::size_t gradient) const;
  /// Another tensor over the memory of this one, laid out as the slot's exit gradient.
  at::Tensor renewed(const at::Tensor& gradient, const Gradient& slot) const;
  at::Tensor& gradient_of(const Owner& owner, std::span<const live::Argument> arguments) const;
  /// The very object that the caller has already, or an undefined tensor.
  at::Tensor known_result(std::size_t index, const std::vector<at::Tensor>& results,
                          std::span<const live::Argument> arguments,
                          const std::vector<at::Tensor>& gradients_at_entry) const;
  at::Tensor result_of(std::size_t index, std::vector<at::Tensor>& results,
                       std::span<const live::Argument> arguments,
                       const std::vector<at::Tensor>& gradients_at_entry) const;
  /// Makes a result a view of what it was one of. `bases`: those that the step made, by
  /// Identity::View::position, as far as they are there.
  void make_view(std::size_t index, const std::vector<at::Tensor>& results,
                 std::span<const live::Argument> arguments,
                 std::map<std::size_t, at::Tensor>& bases) const;
  at::Tensor alias_of(const at::Tensor& base, const Result& result) const;

  const trace::Recording& recording_;
  const guards::GuardSet& guards_;
  bool uses_gradients_at_entry_ = false;
  bool shares_versions_ = false;  ///< some tensors may share a version counter that moves
  std::vector<Gradient> gradients_;
  class VersionMoves;
  struct Written {
    std::size_t position;
    Move move;
  };
  std::vector<Written> written_;   ///< of Recording::tracked
  std::vector<std::size_t> kept_;  ///< of Recording::tracked: all but dropped gradients
  std::vector<Written> written_inputs_;
  std::vector<std::size_t> toggled_inputs_;  ///< that require grad after the step alone, or before
  std::vector<Result> results_;
  bool returns_gradients_ = false;
  std::vector<recorder::Identity> identities_;
};

}  // namespace steptape::session
