#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <vector>

#include "replayer/cpu/kernels/elements.h"
#include "replayer/cpu/kernels/kernel.h"

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
  const at::Tensor& tensor() const { return tensor_; }

 private:
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

  /// With addresses and numbers as they are now.
  elements::Operands operands() const;
};

/// One call, which may be of a list of tensors: an op for each.
class ElementwiseKernel final : public Kernel {
 public:
  explicit ElementwiseKernel(std::vector<ElementOp> ops) : ops_(std::move(ops)) {}

  void run() override;
  const std::vector<ElementOp>& ops() const { return ops_; }

 private:
  std::vector<ElementOp> ops_;
};

}  // namespace steptape::replayer::cpu
