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

template <typename T>
Value integer(const std::byte* bytes) noexcept {
  return {static_cast<std::int64_t>(load<T>(bytes))};
}

}  // namespace

Value element_of(const std::byte* bytes, DType dtype) noexcept {
  switch (dtype) {
    case DType::kBool:
      return {load<std::uint8_t>(bytes) != 0};
    case DType::kUInt8:
      return integer<std::uint8_t>(bytes);
    case DType::kInt8:
      return integer<std::int8_t>(bytes);
    case DType::kInt16:
      return integer<std::int16_t>(bytes);
    case DType::kInt32:
      return integer<std::int32_t>(bytes);
    case DType::kInt64:
      return integer<std::int64_t>(bytes);
    case DType::kFloat32:
      return {Real{load<float>(bytes)}};
    case DType::kFloat64:
      return {Real{load<double>(bytes)}};
    default:
      return {};
  }
}

bool put_element(double number, DType dtype, std::byte* bytes) noexcept {
  switch (dtype) {
    case DType::kBool:
      return store<std::uint8_t>(number != 0 ? 1 : 0, bytes);
    case DType::kUInt8:
      return store<std::uint8_t>(number, bytes);
    case DType::kInt8:
      return store<std::int8_t>(number, bytes);
    case DType::kInt16:
      return store<std::int16_t>(number, bytes);
    case DType::kInt32:
      return store<std::int32_t>(number, bytes);
    case DType::kInt64:
      return store<std::int64_t>(number, bytes);
    case DType::kFloat32:
      return store<float>(number, bytes);
    case DType::kFloat64:
      return store<double>(number, bytes);
    default:
      return false;
  }
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
