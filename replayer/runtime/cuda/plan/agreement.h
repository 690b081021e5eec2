#pragma once

#include <ATen/core/stack.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "replayer/planner/program.h"

namespace steptape::replayer::cuda {

/// What an argument of a `_foreach_` operator is made of: of argument `from` of the ops it stands
/// for.
struct ForeachArgument {
  enum class Kind : std::uint8_t {
    kEach,        ///< the list of their tensors
    kShared,      ///< the tensor that all of them take
    kNumber,      ///< the number that all of them take, or the one element of a tensor of the host
    kReciprocal,  ///< its reciprocal, in the type that ATen computes in
  };
  Kind kind = Kind::kEach;
  std::size_t from = 0;

  bool is_number() const { return kind == Kind::kNumber || kind == Kind::kReciprocal; }
};

/// An operator of LibTorch's that does to each tensor of a list what another one does to one. That
/// the bits are the same is not known beforehand (see agrees).
struct ForeachOperator {
  std::string op;  ///< that it stands for: "aten::mul_.Tensor"
  std::string name, overload;
  std::vector<ForeachArgument> arguments;
  /// The argument of the op that is written, where that is not the first of `arguments`: both must
  /// be one tensor.
  std::optional<std::size_t> out = {};
};

/// Those that may do what `op` does, the better ones first. Arguments that they do not take must
/// have their default.
std::vector<const ForeachOperator*> foreach_operators_of(std::string_view op);

/// Whether the operator leaves the bits that op `op` of the program does, on the device and for the
/// dtype and kinds of numbers that the op was recorded with. It is tried on made-up tensors the
/// first time that a process asks: those who write a formula twice round it in two kinds, and
/// LibTorch does (`_foreach_div` divides where `div` multiplies by the reciprocal). Draws from no
/// generator. Waits for the current stream.
bool agrees(const Program& program, const ForeachOperator& by, trace::Index op);

/// The number that stands for `value` where an operator takes it in the way of `kind`, for tensors
/// of `dtype`.
c10::IValue foreach_number(const c10::IValue& value, ForeachArgument::Kind kind,
                           at::ScalarType dtype);

/// Gives the operator the defaults of the arguments that are not on the stack yet.
void add_defaults(const c10::FunctionSchema& schema, torch::jit::Stack& stack);

}  // namespace steptape::replayer::cuda
