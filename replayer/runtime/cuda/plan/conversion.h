#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

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

/// Which values a number may take.
enum class Domain : std::uint8_t {
  kReal,
  kIntegral,  ///< the op takes an integer
};

/// Whether ATen may launch other kernels for it than for most: `pow` and `norm` have special cases
/// for 0, 0.5, 1, 2 and 3, whatever the sign, `addmm` has 0 and 1.
bool is_special(double value);

/// The numbers of the captures from which slots are learned, the same for equal arguments: each
/// number alone at two other values, and all together at three more; before, between and after them
/// the recorded ones, so that what varies by itself shows. Other values have the sign and about the
/// size of the recorded one (of a zero: about 0.001), lie on the same side of 1 and within the
/// range of the same dtypes, are none that ATen has special cases for, and tell conversions apart
/// that agree for most numbers, as far as there are such values. A number that is not finite stays
/// as it is, and is found unused.
std::vector<std::vector<double>> sample_numbers(std::span<const double> recorded,
                                                std::span<const Domain> domains);

}  // namespace steptape::replayer::cuda
