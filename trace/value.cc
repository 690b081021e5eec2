#include "trace/value.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <type_traits>

namespace steptape::trace {
namespace {

template <typename T>
T load(const std::byte* bytes) noexcept {
  T value;
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

template <typename T>
bool store(double number, std::byte* bytes) noexcept {
  if constexpr (std::is_integral_v<T>) {
    constexpr double kEnd = static_cast<double>(std::numeric_limits<T>::max()) + 1.0;
    if (!(number > std::numeric_limits<T>::min() - 1.0 && number < kEnd) &&
        number != static_cast<double>(std::numeric_limits<T>::min())) {
      return false;
    }
  }
  const auto value = static_cast<T>(number);
  std::memcpy(bytes, &value, sizeof value);
  return true;
}

/// What `visit` makes of a T{} of the element type; `none` for a dtype that no host number stands
/// for.
template <typename Result, typename Visit>
Result with_element_type(DType dtype, Result none, Visit&& visit) {
  switch (dtype) {
    case DType::kUInt8:
      return visit(std::uint8_t{});
    case DType::kInt8:
      return visit(std::int8_t{});
    case DType::kInt16:
      return visit(std::int16_t{});
    case DType::kInt32:
      return visit(std::int32_t{});
    case DType::kInt64:
      return visit(std::int64_t{});
    case DType::kFloat32:
      return visit(float{});
    case DType::kFloat64:
      return visit(double{});
    default:
      return none;
  }
}

}  // namespace

Value element_of(const std::byte* bytes, DType dtype) noexcept {
  if (dtype == DType::kBool) return {load<std::uint8_t>(bytes) != 0};
  return with_element_type(dtype, Value(), [bytes](auto zero) -> Value {
    using T = decltype(zero);
    if constexpr (std::is_integral_v<T>)
      return {static_cast<std::int64_t>(load<T>(bytes))};
    else
      return {Real{load<T>(bytes)}};
  });
}

bool put_element(double number, DType dtype, std::byte* bytes) noexcept {
  if (dtype == DType::kBool) return store<std::uint8_t>(number != 0 ? 1 : 0, bytes);
  return with_element_type(
      dtype, false, [number, bytes](auto zero) { return store<decltype(zero)>(number, bytes); });
}

namespace {

/// Whether an element of a whole number or a flag gives the number back: 1.5 is not an int.
bool is_kept(double number, DType dtype, const std::byte* element) noexcept {
  if (dtype == DType::kFloat32 || dtype == DType::kFloat64) return true;
  return number_of(element_of(element, dtype)) == number;
}

}  // namespace

bool is_element(double number, DType dtype, std::span<const std::byte> content) noexcept {
  std::array<std::byte, sizeof(double)> element{};
  return content.size() == bytes_of(dtype) && put_element(number, dtype, element.data()) &&
         is_kept(number, dtype, element.data()) &&
         std::equal(content.begin(), content.end(), element.begin());
}

}  // namespace steptape::trace
