#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "trace/model.h"

/// What an op does with bits beyond what its schema says, where that must be known without
/// LibTorch, too. live/effects.h has the rest.
namespace steptape::trace {

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
