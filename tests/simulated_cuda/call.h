#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/function_schema.h>
#include <ATen/core/stack.h>
#include <c10/core/Scalar.h>

#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "tests/simulated_cuda/work.h"

namespace steptape::tests::simulated {

/// A tensor in device memory as a kernel sees it: an address and a geometry, nothing that owns.
struct View {
  std::size_t pointer = 0;  ///< its place among the kernel's pointers
  std::vector<std::int64_t> sizes;
  std::vector<std::int64_t> strides;
  at::ScalarType dtype = at::kFloat;
  bool is_conj = false;
  bool is_neg = false;

  /// The same bytes as a CPU tensor.
  at::Tensor over(void* address) const;
};

/// How a number lies in a kernel's parameters.
enum class Encoding { kFloat, kDouble, kLong };

/// How an operator's numbers differ from the rule.
enum class NumberRule {
  kComputeType,  ///< of the type that the kernel computes in: float for float tensors and below
  kDouble,       ///< always doubles: the kernel takes doubles, or the numbers decide a shape
  kReciprocal,   ///< division: of a divisor on the host the kernel is given the reciprocal
};

/// One call of an operator, taken apart the way a kernel launch is: pointers to device memory and
/// numbers, which become the kernel's parameters, and the rest, which is compiled into it.
///
/// Parameters, in this order, each only where there is one: the numbers (each Scalar and `float`
/// argument and each 0-dim CPU tensor, in the order of the schema, each at a multiple of its size),
/// the pointers, and the Philox state (see add_philox). Complex numbers stay compiled in.
class Call {
 public:
  /// Throws where a tensor lies on the wrong device.
  Call(const c10::FunctionSchema& schema, const torch::jit::Stack& arguments, NumberRule rule);

  /// Adds a tensor that is not an argument: an output.
  View add_output(const at::Tensor& tensor);
  void add_philox(std::span<const std::byte> state);

  /// The parameter block and the sizes of its parameters, once all is added.
  Parameters parameters() const;
  std::vector<std::size_t> parameter_sizes() const;

  void* pointer(std::span<const std::byte> parameters, const View& view) const;
  std::span<const std::byte> philox(std::span<const std::byte> parameters) const;

  /// The arguments again, with numbers from `parameters`, with what `make` gives for each tensor
  /// in device memory, on the CPU and with `generator` in place of any generator.
  using MakeTensor = std::function<at::Tensor(const View&)>;
  torch::jit::Stack arguments(std::span<const std::byte> parameters, const MakeTensor& make,
                              const std::optional<at::Generator>& generator) const;
  /// The same over the device memory itself.
  torch::jit::Stack arguments(std::span<const std::byte> parameters,
                              const std::optional<at::Generator>& generator) const;

  /// Elements of the largest tensor.
  std::int64_t elements() const { return elements_; }
  bool is_reciprocal() const { return is_reciprocal_; }

 private:
  struct Number {
    std::size_t offset = 0;
    Encoding encoding = Encoding::kFloat;
    at::Scalar original;
  };
  struct Slot {
    c10::IValue constant;
    std::vector<std::optional<View>> views;  ///< of a tensor: one; of a list: one per element
    std::vector<std::optional<Number>> numbers;
    std::vector<at::Tensor> host;  ///< 0-dim tensors on the CPU, beside their numbers
  };

  void take(Slot& slot, const at::Tensor& tensor, bool is_reciprocal);
  Number add_number(const at::Scalar& value, bool is_reciprocal);
  at::Scalar number(std::span<const std::byte> parameters, const Number& number) const;
  at::Tensor tensor(std::span<const std::byte> parameters, const Slot& slot, std::size_t index,
                    const MakeTensor& make) const;
  std::size_t pointers_offset() const { return (numbers_.size() + 7) / 8 * 8; }

  const c10::FunctionSchema& schema_;
  NumberRule rule_;
  at::ScalarType compute_ = at::kFloat;
  std::vector<Slot> slots_;
  std::vector<std::byte> numbers_;
  std::vector<void*> pointers_;
  std::vector<std::byte> philox_;
  std::int64_t elements_ = 0;
  bool is_reciprocal_ = false;
};

}  // namespace steptape::tests::simulated
