#pragma once

#include <cstdint>
#include <string_view>

#include "trace/model.h"

/// What an op does with bits beyond what its schema says: for parts that have no LibTorch at hand.
namespace steptape::diff {

enum class OpException : std::uint8_t {
  kUnwritten,     ///< its results are whatever the allocator left
  kOverwrites,    ///< does not look at the bits of what it writes
  kGeometryOnly,  ///< does not look at the bits of any argument
  kDraws,         ///< draws from LibTorch's generator, which is no argument of it
};

/// Whether the operator of this name, without its overload, is such an exception.
bool is_exception(std::string_view name, OpException kind) noexcept;

/// Whether it takes a generator, or draws without one.
bool draws(const trace::Operator& op) noexcept;

}  // namespace steptape::diff
