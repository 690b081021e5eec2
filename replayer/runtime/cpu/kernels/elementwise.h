#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <vector>

#include "replayer/runtime/call.h"
#include "replayer/runtime/cpu/kernels/elements.h"

namespace steptape::replayer::cpu {

/// A number of an element-wise op: it is taken anew before each run.
class ElementNumber {
 public:
  ElementNumber() = default;
  explicit ElementNumber(float literal) : literal_(literal) {}
  /// A number among a call's arguments, which outlives this; `item` of it where it is a list.
  ElementNumber(const c10::IValue& argument, std::int64_t item)
      : argument_(&argument), item_(item) {}
  /// A tensor of one element, which lies where it does now in every run, or may move.
  ElementNumber(at::Tensor tensor, bool is_fixed);

  /// As it is now. False where the arithmetic here is not that of the op: for a NaN, which may meet
  /// another, and for what float32 cannot hold, which the op may refuse.
  bool take(float& number) const;
  const at::Tensor& tensor() const { return tensor_; }
  bool varies() const { return tensor_.defined() || argument_ != nullptr; }

 private:
  double exact() const;

  float literal_ = 0;
  const c10::IValue* argument_ = nullptr;
  std::int64_t item_ = -1;
  at::Tensor tensor_;
  at::ScalarType dtype_ = at::kFloat;
  const void* element_ = nullptr;  ///< that of a fixed tensor
};

/// One op over float32 elements that lie side by side in each of its tensors.
struct ElementOp {
  using Numbers = std::array<float, 2>;

  elements::Function* function = nullptr;
  at::Tensor out;
  std::array<at::Tensor, 3> in;
  std::array<ElementNumber, 2> numbers;
  std::int64_t count = 0;
  /// The first number for which an element's bits depend on its place; NaN where there is none.
  float unfit = std::numeric_limits<float>::quiet_NaN();

  bool varies() const { return std::ranges::any_of(numbers, &ElementNumber::varies); }
  /// As they are now; false where one of them is not fit.
  bool take_numbers(Numbers& taken) const {
    return numbers[0].take(taken[0]) && numbers[1].take(taken[1]) && taken[0] != unfit;
  }
};

/// One call, which may be of a list of tensors: an op for each. Where a number is not fit the
/// dispatcher does it.
class ElementwiseKernel final : public Kernel {
 public:
  ElementwiseKernel(std::vector<ElementOp> ops, const Call& call, std::vector<at::Tensor> results);

  void run() override;
  const std::vector<ElementOp>& ops() const { return ops_; }

 private:
  std::vector<ElementOp> ops_;
  std::vector<ElementOp::Numbers> numbers_;  ///< of each op, in the run under way
  const Call& call_;
  std::vector<at::Tensor> results_;
};

}  // namespace steptape::replayer::cpu
