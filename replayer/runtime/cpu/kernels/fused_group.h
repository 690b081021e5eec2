#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <unordered_set>
#include <vector>

#include "replayer/runtime/cpu/kernels/elementwise.h"
#include "replayer/runtime/uses.h"

namespace steptape::replayer::cpu {

/// Storages that hold something between two calls of a stage, and nothing
/// before or after it.
using Intermediates = std::unordered_set<const c10::StorageImpl*>;

/// Ops over the same elements, in order: they are run one after the other over
/// a stretch that the processor's cache holds, then over the next.
class FusedLoop final : public Kernel {
 public:
  /// What lies on storages of `intermediates` is used by no other loop.
  FusedLoop(std::span<const ElementOp* const> ops, const Intermediates& intermediates);

  /// As the numbers of its ops are now, for the next run; false where one of them is not fit.
  bool take_numbers();
  void run() override;
  /// Whether what passes within it is written to its memory, too, for whoever
  /// looks at it.
  void keep_everything(bool keeps) { keeps_everything_ = keeps; }

 private:
  /// One op, its tensors by their places in `tensors_`.
  struct Step {
    const ElementOp* op;
    std::size_t out;
    std::array<std::size_t, 3> in;
  };
  static constexpr std::size_t kInMemory = SIZE_MAX;

  void give_slots(const Intermediates& intermediates);
  static float* scratch(std::size_t floats);
  elements::Operands operands_of(std::size_t step) const;

  std::int64_t count_;
  std::vector<Step> steps_;
  std::vector<ElementOp::Numbers> numbers_;  ///< of each step
  std::vector<std::size_t> varying_;         ///< steps whose numbers are not the same in each run
  std::vector<at::Tensor> tensors_ = {at::Tensor()};  ///< the first stands for none
  std::vector<bool> is_written_ = {false};
  /// By tensor: the stretch of scratch memory that stands for it, or kInMemory.
  std::vector<std::size_t> slots_ = {kInMemory};
  std::size_t slot_count_ = 0;
  bool keeps_everything_ = false;
  std::vector<float*> addresses_;
  std::vector<elements::Operands> operands_;
};

/// Calls that follow each other, done in one pass over memory. Ops that share no memory may change
/// places. Leaves the bits that the kernels leave one after the other.
class FusedGroup final : public Kernel {
 public:
  /// No kernel may write a tensor that a later one takes as a number. They must outlive it.
  explicit FusedGroup(std::span<ElementwiseKernel* const> kernels,
                      const Intermediates& intermediates = {});

  /// By its loops where they leave the bits of the calls for the numbers that those have now; else
  /// call by call.
  void run() override;
  /// See FusedLoop.
  void keep_everything(bool keeps);

 private:
  std::vector<ElementwiseKernel*> kernels_;
  std::vector<std::unique_ptr<FusedLoop>> loops_;
};

}  // namespace steptape::replayer::cpu
