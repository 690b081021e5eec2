#pragma once

#include <ATen/TensorIterator.h>
#include <ATen/core/Tensor.h>
#include <c10/util/FunctionRef.h>

#include <cstddef>

namespace steptape::replayer::cpu {

/// LibTorch's own threads, for work that is not an operator's: no thread is added to those that
/// operators are shared out to, and none of these is awake beside them.
class Team {
 public:
  /// For `members` pieces of work. Allocates.
  explicit Team(std::size_t members);

  /// Calls `work` once for each member, on as many threads as LibTorch has for an operator; on
  /// fewer than there are members, one thread calls it for several, one after the other. Returns
  /// when all have returned. Denormals and rounding are the calling thread's on all. An exception
  /// of one of them goes on. In a forked process, which has none of these threads, the calling
  /// thread does all.
  void run(c10::function_ref<void(std::size_t member)> work);

 private:
  at::Tensor members_;  ///< a byte each
  at::TensorIterator iterator_;
};

}  // namespace steptape::replayer::cpu
