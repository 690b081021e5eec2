#pragma once

#include <cstddef>
#include <span>

#include "trace/dtype.h"

namespace steptape::session {

/// The bound of Numerics::kFused; docs/numerics.md has its reason.
inline constexpr double kMostUlps = 16;

/// The largest distance between elements of `a` and `b`, in units in the last place of the largest
/// of both and of what stood there before: an update that nearly cancels what it updates is as
/// exact as its operands were. Infinite where one is NaN or infinite and the other is not the same.
/// All three have the same size; `dtype` is float32 or float64.
double distance_in_ulps(std::span<const std::byte> before, std::span<const std::byte> a,
                        std::span<const std::byte> b, trace::DType dtype);

}  // namespace steptape::session
