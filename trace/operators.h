#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trace/model.h"

/// What the schema of an operator says, read from its text: for parts that have no LibTorch at
/// hand.
namespace steptape::trace {

struct SchemaArgument {
  std::string_view name;    ///< "self"
  bool is_written = false;  ///< annotated as written: `Tensor(a!) self`
  bool is_output = false;   ///< annotated and passed by keyword alone: `*, Tensor(a!) out`
  std::string_view type;    ///< "Tensor(a!)", "ScalarType?", "Tensor?[]"
  bool is_keyword = false;  ///< passed by keyword alone
};

/// The arguments of "aten::add_.Tensor(Tensor(a!) self, Tensor other, *, Scalar alpha=1) -> ...",
/// in order. Names and types are parts of `schema`, which must outlive them. Of text that is no
/// schema, what reads as one.
std::vector<SchemaArgument> arguments_of(std::string_view schema);
/// "other"; "inputs[7]" where the schema does not name it.
std::string argument_name(const std::vector<SchemaArgument>& arguments, std::size_t position);

/// Tensors that an op reads and writes, in the order of its arguments, each once.
struct OpUse {
  std::vector<TensorId> reads;
  std::vector<TensorId> writes;
};

/// One for each of Recording::ops, as schemas and Op::unannotated_writes tell. An argument written
/// in place is read too; one that is given as output is not. An op that changes the geometry of its
/// argument alone, such as `aten::t_`, counts as one that writes it.
std::vector<OpUse> uses_of(const Recording& recording);

// What an op does with bits beyond what its schema says, where that must be known without
// LibTorch, too. live/effects.h has the rest.

enum class OpException : std::uint8_t {
  kUnwritten,     ///< its results are whatever the allocator left
  kOverwrites,    ///< does not look at the bits of what it writes
  kGeometryOnly,  ///< does not look at the bits of any argument
  kDraws,         ///< draws from LibTorch's generator, which is not an argument of it
};

struct OpExceptionRow {
  std::string_view name;  ///< "aten::copy_": every overload
  OpException kind;
  std::string_view reason;
};
std::span<const OpExceptionRow> op_exceptions() noexcept;

/// Whether the operator of this name, without its overload, is such an exception.
bool is_exception(std::string_view name, OpException kind) noexcept;

/// Whether it takes a generator, or draws without one.
bool draws(const Operator& op) noexcept;

}  // namespace steptape::trace
