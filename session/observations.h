#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

namespace steptape::session {

/// What a step function asked to look at, in order: kept from the step that ran it to the replays
/// that do not.
class Observations {
 public:
  using Look = std::function<void(const at::Tensor&)>;

  /// The tensor itself, not a copy: its value after the step counts. Without its graph.
  void add(const at::Tensor& tensor, Look look);
  const std::vector<at::Tensor>& tensors() const { return tensors_; }
  std::vector<Look> take_looks() { return std::move(looks_); }
  /// Calls every function with its tensor; what one throws passes through.
  static void show(const std::vector<Look>& looks, const std::vector<at::Tensor>& tensors);

  /// Those of the step that this thread is in, or null.
  static Observations* current() noexcept;

  /// Makes `observations` the current ones while it lives.
  class Scope {
   public:
    explicit Scope(Observations& observations);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Observations* previous_;
  };

 private:
  std::vector<at::Tensor> tensors_;
  std::vector<Look> looks_;
};

}  // namespace steptape::session
