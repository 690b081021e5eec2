#pragma once

#include <vector>

#include "replayer/runtime/uses.h"

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

  /// Whether it leaves the same bits on a thread of a team that works side by side, where ATen
  /// shares nothing out, and beside kernels that use none of the memory that it writes.
  virtual bool runs_anywhere() const { return false; }

  /// What it reads lies elsewhere, modulo 64, than ever before: finds out how it leaves there what
  /// the op leaves. False where it does not.
  virtual bool adapt() { return true; }

  /// Memory of its own that other kernels of the plan use, too.
  virtual std::vector<Use> own_uses() const { return {}; }
};

}  // namespace steptape::replayer
