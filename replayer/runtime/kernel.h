#pragma once

namespace steptape::replayer {

/// Does a call of a run in place of the dispatcher: the op's computation, with all that ATen works
/// out anew in each call (dispatch, checks, shapes, iterators) worked out when the plan was made.
/// Leaves the bits that the op leaves.
class Kernel {
 public:
  Kernel() = default;
  virtual ~Kernel() = default;
  Kernel(const Kernel&) = delete;
  Kernel& operator=(const Kernel&) = delete;

  /// Reads and writes the plan's tensors, wherever they lie now. Throws what the op throws.
  virtual void run() = 0;

  /// What it reads lies elsewhere, modulo 64, than ever before: finds out how it leaves there what
  /// the op leaves.
  virtual void adapt() {}
};

}  // namespace steptape::replayer
