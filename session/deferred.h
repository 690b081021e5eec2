#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <vector>

#include "live/scoped.h"

namespace torch::optim {
class Optimizer;
}

namespace steptape::session {

/// What a step function puts off until it has returned, in order: optimizers to step, tensors to
/// look at. Kept from the call that ran the function to the replays that do not.
struct Deferred {
  using Look = std::function<void(const at::Tensor&)>;

  std::vector<torch::optim::Optimizer*> updates;
  std::vector<Look> looks;
  /// What the looks are for: the tensors themselves, since their value after the step counts,
  /// without their graphs.
  std::vector<at::Tensor> tensors;
  std::shared_ptr<const void> note;  ///< pack::Results::note

  void observe(const at::Tensor& tensor, Look look);
  /// Puts off further what a step inside this one has put off: when this one is recorded the inner
  /// one is a part of it, and all that it puts off comes after this one as well.
  void take_over(Deferred&& inner);
  /// What may be kept for replays: they have tensors of their own.
  Deferred without_tensors() const { return {updates, looks, {}, note}; }
  /// Steps the optimizers by `step`, then shows the tensors. What one of them throws passes
  /// through.
  void run(const std::function<void(torch::optim::Optimizer&)>& step) const;

  /// Of the step that this thread is in, or null.
  static Deferred* current() noexcept;

  static live::Scoped<Deferred*> make_current(Deferred& deferred);
};

}  // namespace steptape::session
