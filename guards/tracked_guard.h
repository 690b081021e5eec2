#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "guards/tensor_facts.h"
#include "live/objects.h"
#include "steptape/verdict.h"
#include "trace/model.h"

namespace steptape::guards {

/// Guards tracked tensors and gradients at entry: geometry, dtype, device, requires_grad, address
/// remainder, hooks, None or defined; and finds their memory, which may have moved.
class TrackedGuard {
 public:
  /// `position` is where the memory of a buffer belongs, `written` those that the plan writes;
  /// `snapshot` was taken right after `recording` was made; its tensors are those of
  /// `recording.tracked`, in order. Throws Error (internal) when they are not.
  TrackedGuard(const trace::Recording& recording, const std::vector<std::int64_t>& position,
               const std::vector<trace::BufferId>& written, const live::Snapshot& snapshot);

  Verdict check(std::span<void*> memory) const;
  /// What of it would hold in any memory: all but address remainders, and whether gradients are
  /// there. Tells tensors that share one by `memory`.
  Verdict check_unplaced(std::span<void*> memory) const;

  /// The path of a tensor other than a gradient whose memory moved since `forget_moves`; empty when
  /// none did.
  std::string moved() const;
  void forget_moves() const { facts_.forget_moves(); }
  /// As TensorFacts::moves.
  std::uint64_t moves() const { return facts_.moves(); }

  /// Where a tensor that lies on a buffer stands in Recording::tracked; -1 when none does.
  std::int64_t position_on(trace::BufferId buffer) const {
    return buffer < on_buffer_.size() ? on_buffer_[buffer] : -1;
  }
  /// The tensor of Recording::tracked at `position`; of a gradient, its parameter.
  at::Tensor tensor(std::size_t position) const {
    return at::Tensor(watched_[position].tensor.lock());
  }
  /// The same, without a handle: of one that a check has just found alive.
  c10::TensorImpl& alive(std::size_t position) const {
    return *watched_[position].tensor._unsafe_get_target();
  }
  /// The tensor of Recording::tracked at `position`, gradients too.
  at::Tensor tensor_at(std::size_t position) const {
    const at::Tensor owner = tensor(position);
    return watched_[position].is_gradient() ? owner.grad() : owner;
  }
  /// Of a tensor, other than a gradient, that is tracked; "" for another.
  std::string_view path_of(const at::Tensor& tensor) const;
  /// Where the tensor of a path, other than a gradient, stands in Recording::tracked; throws Error
  /// (internal) when there is none.
  std::size_t position_of(const std::string& path) const;

 private:
  struct Watched {
    std::string path;
    /// Of a gradient: the parameter. Weakly, so that a plan keeps none alive and none seems used by
    /// others.
    TensorFacts::Weak tensor;
    TensorFacts::Expectation expected;
    bool is_gradient() const { return expected.is_gradient; }
  };

  Watched watch(const trace::Tracked& tracked, const live::TensorAt& at) const;
  /// Packs what is watched: gradients right after their parameters.
  void pack(const live::Snapshot& snapshot);
  /// Looks again at one that is not as its fact has it, and says what differs.
  static Verdict check_one(const Watched& watched, std::span<void*> memory);
  static Verdict check_memory(const Watched& watched, const at::Tensor& tensor,
                              std::span<void*> memory);

  std::vector<Watched> watched_;
  std::vector<std::size_t> order_;  ///< of `watched_` in `facts_`
  mutable TensorFacts facts_;
  std::vector<std::int64_t> on_buffer_;
  std::unordered_map<std::string, std::size_t> parameters_;  ///< all but gradients, by path
  std::unordered_map<const c10::TensorImpl*, std::size_t> by_tensor_;  ///< the same, by the object
};

}  // namespace steptape::guards
