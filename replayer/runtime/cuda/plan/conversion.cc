#include "replayer/runtime/cuda/plan/conversion.h"

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <type_traits>

namespace steptape::replayer::cuda {
namespace {

struct ConversionRow {
  std::string_view name;
  std::size_t bytes;
};

/// By Conversion.
constexpr std::array kRows = {
    ConversionRow{"float(x)", 4},
    ConversionRow{"float(-x)", 4},
    ConversionRow{"1.f / float(x)", 4},
    ConversionRow{"float(1.0 / x)", 4},
    ConversionRow{"1.f - float(x)", 4},
    ConversionRow{"float(1.0 - x)", 4},
    ConversionRow{"float(half(x))", 4},
    ConversionRow{"double(x)", 8},
    ConversionRow{"double(-x)", 8},
    ConversionRow{"1.0 / x", 8},
    ConversionRow{"1.0 - x", 8},
    ConversionRow{"double(float(x))", 8},
    ConversionRow{"bfloat16(float(x))", 2},
    ConversionRow{"bfloat16(float(-x))", 2},
    ConversionRow{"half(float(x))", 2},
    ConversionRow{"half(float(-x))", 2},
    ConversionRow{"int32_t(x)", 4},
    ConversionRow{"int32_t(-x)", 4},
    ConversionRow{"int64_t(x)", 8},
    ConversionRow{"int64_t(-x)", 8},
    ConversionRow{"int16_t(x)", 2},
    ConversionRow{"int8_t(x)", 1},
    ConversionRow{"uint8_t(x)", 1},
};
static_assert(kRows.size() == kConversions);

template <typename Integer>
std::optional<std::uint64_t> integer_bits(double number) {
  const double whole = std::trunc(number);
  // The least integer is a power of two, and so exact as a double; the largest may not be.
  constexpr auto kLeast = static_cast<double>(std::numeric_limits<Integer>::min());
  const double beyond = std::ldexp(1.0, std::numeric_limits<Integer>::digits);
  if (!(whole >= kLeast && whole < beyond)) return std::nullopt;
  return static_cast<std::make_unsigned_t<Integer>>(static_cast<Integer>(whole));
}

std::uint64_t bits(float value) { return std::bit_cast<std::uint32_t>(value); }
std::uint64_t bits(double value) { return std::bit_cast<std::uint64_t>(value); }

}  // namespace

std::string_view name_of(Conversion conversion) noexcept {
  return kRows[static_cast<std::size_t>(conversion)].name;
}

std::size_t bytes_of(Conversion conversion) noexcept {
  return kRows[static_cast<std::size_t>(conversion)].bytes;
}

std::optional<std::uint64_t> bits_of(double number, Conversion conversion) noexcept {
  const auto single = static_cast<float>(number);
  switch (conversion) {
    case Conversion::kFloat32:
      return bits(single);
    case Conversion::kFloat32Negated:
      return bits(-single);
    case Conversion::kFloat32Reciprocal:
      return bits(1.0F / single);
    case Conversion::kFloat32OfReciprocal:
      return bits(static_cast<float>(1.0 / number));
    case Conversion::kFloat32OneMinus:
      return bits(1.0F - single);
    case Conversion::kFloat32OfOneMinus:
      return bits(static_cast<float>(1.0 - number));
    case Conversion::kFloat32OfFloat16:
      return bits(static_cast<float>(c10::Half(single)));
    case Conversion::kFloat64:
      return bits(number);
    case Conversion::kFloat64Negated:
      return bits(-number);
    case Conversion::kFloat64Reciprocal:
      return bits(1.0 / number);
    case Conversion::kFloat64OneMinus:
      return bits(1.0 - number);
    case Conversion::kFloat64OfFloat32:
      return bits(static_cast<double>(single));
    case Conversion::kBFloat16:
      return c10::BFloat16(single).x;
    case Conversion::kBFloat16Negated:
      return c10::BFloat16(-single).x;
    case Conversion::kFloat16:
      return c10::Half(single).x;
    case Conversion::kFloat16Negated:
      return c10::Half(-single).x;
    case Conversion::kInt32:
      return integer_bits<std::int32_t>(number);
    case Conversion::kInt32Negated:
      return integer_bits<std::int32_t>(-number);
    case Conversion::kInt64:
      return integer_bits<std::int64_t>(number);
    case Conversion::kInt64Negated:
      return integer_bits<std::int64_t>(-number);
    case Conversion::kInt16:
      return integer_bits<std::int16_t>(number);
    case Conversion::kInt8:
      return integer_bits<std::int8_t>(number);
    case Conversion::kUInt8:
      return integer_bits<std::uint8_t>(number);
  }
  return std::nullopt;
}

}  // namespace steptape::replayer::cuda
