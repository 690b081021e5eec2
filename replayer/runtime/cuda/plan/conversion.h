#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace steptape::replayer::cuda {

/// What stands in a kernel's parameters for a host number x, as ATen's kernels make it: rounded to
/// the dtype or to its opmath_t, negated (`sub` is `add` with -alpha), or as a reciprocal (a
/// division by a host number multiplies by it). `Of` is a rounding of what was computed in double;
/// without it the computation itself is done in the type, on the rounded number. A narrowing
/// rounds through float32, as c10 does. Where samples cannot tell two apart, the former is taken.
enum class Conversion : std::uint8_t {
  kFloat32,              ///< float(x)
  kFloat32Negated,       ///< float(-x)
  kFloat32Reciprocal,    ///< 1.f / float(x): true_divide and its rounding kin
  kFloat32OfReciprocal,  ///< float(1.0 / x): scales of upsampling
  kFloat32OneMinus,      ///< 1.f - float(x)
  kFloat32OfOneMinus,    ///< float(1.0 - x): dropout
  kFloat32OfFloat16,     ///< float(half(x)): a 0-dim tensor of half
  kFloat64,              ///< x: fused optimizers
  kFloat64Negated,
  kFloat64Reciprocal,
  kFloat64OneMinus,
  kFloat64OfFloat32,  ///< double(float(x)): a 0-dim tensor of float
  kBFloat16,          ///< fill_, pow, threshold
  kBFloat16Negated,
  kFloat16,
  kFloat16Negated,
  kInt32,  ///< towards zero, as all integers
  kInt32Negated,
  kInt64,
  kInt64Negated,
  kInt16,
  kInt8,
  kUInt8,
};

/// How many there are.
constexpr std::size_t kConversions = static_cast<std::size_t>(Conversion::kUInt8) + 1;

/// As an expression in C++: "1.f / float(x)".
std::string_view name_of(Conversion conversion) noexcept;
/// Bytes of what it gives; they lie at a multiple of as many.
std::size_t bytes_of(Conversion conversion) noexcept;
/// The bits of what it gives, in the low bytes; none for a number outside of an integer's range.
std::optional<std::uint64_t> bits_of(double number, Conversion conversion) noexcept;

}  // namespace steptape::replayer::cuda
