#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "replayer/runtime/call.h"
#include "replayer/runtime/cpu/kernels/elements.h"
#include "replayer/runtime/kernel.h"

namespace steptape::replayer::cpu {

/// A number of an element-wise op: it is taken anew before each run.
class ElementNumber {
 public:
  ElementNumber() = default;
  explicit ElementNumber(float literal) : literal_(literal) {}
  /// A number among a call's arguments, which outlives this; `item` of it where it is a list.
  ElementNumber(const c10::IValue& argument, std::int64_t item)
      : argument_(&argument), item_(item) {}
  /// A tensor of one element.
  explicit ElementNumber(at::Tensor tensor) : tensor_(std::move(tensor)) {}

  float take() const;
  /// Whether the arithmetic here is that of the op: not for a NaN, which may meet another, nor for
  /// what float32 cannot hold, which the op may refuse.
  bool is_fit() const;
  const at::Tensor& tensor() const { return tensor_; }
  bool varies() const { return tensor_.defined() || argument_ != nullptr; }

 private:
  double exact() const;

  float literal_ = 0;
  const c10::IValue* argument_ = nullptr;
  std::int64_t item_ = -1;
  at::Tensor tensor_;
};

/// One op over float32 elements that lie side by side in each of its tensors.
struct ElementOp {
  elements::Function* function = nullptr;
  at::Tensor out;
  std::array<at::Tensor, 3> in;
  std::array<ElementNumber, 2> numbers;
  std::int64_t count = 0;

  /// As they are now.
  void put_numbers(elements::Operands& operands) const;
};

/// One call, which may be of a list of tensors: an op for each. Where a number is not fit the
/// dispatcher does it.
class ElementwiseKernel final : public Kernel {
 public:
  ElementwiseKernel(std::vector<ElementOp> ops, const Call& call, std::vector<at::Tensor> results);

  void run() override;
  const std::vector<ElementOp>& ops() const { return ops_; }
  /// Those that are not the same in each run.
  const std::vector<ElementNumber>& varying() const { return varying_; }

 private:
  std::vector<ElementOp> ops_;
  std::vector<ElementNumber> varying_;
  const Call& call_;
  std::vector<at::Tensor> results_;
};

/// Whether all of them are fit now.
bool are_fit(std::span<const ElementNumber> numbers);

}  // namespace steptape::replayer::cpu
