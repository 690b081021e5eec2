#pragma once

#include <cstddef>
#include <span>

#include "trace/dtype.h"
#include "trace/value.h"

/// Single elements of tensors as host numbers.
namespace steptape::trace {

/// The element at `bytes`; None for a dtype that no host number stands for (16-bit floats,
/// complex).
Value element_of(const std::byte* bytes, DType dtype) noexcept;

/// Writes `number` as an element, rounded as a C++ conversion rounds. False, with nothing written,
/// for a dtype that element_of gives None for, and for a number beyond what a whole element holds.
bool put_element(double number, DType dtype, std::byte* bytes) noexcept;

/// Whether `content` is the one element that put_element writes for `number`.
bool is_element(double number, DType dtype, std::span<const std::byte> content) noexcept;

}  // namespace steptape::trace
