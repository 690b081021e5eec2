#pragma once

#include <fmt/format.h>

#include <array>
#include <string_view>

#include "steptape/error.h"

/// Enumerators and the words that text forms use for them, as tables.
namespace steptape::trace {

template <typename Enum>
struct Named {
  Enum value;
  std::string_view name;
};
// clang 14 finds none by itself
template <typename Enum>
Named(Enum, const char*) -> Named<Enum>;

/// The values of a table, in its order.
template <typename Enum, std::size_t N>
constexpr std::array<Enum, N> values_of(const std::array<Named<Enum>, N>& table) noexcept {
  std::array<Enum, N> values{};
  for (std::size_t i = 0; i < N; ++i) values[i] = table[i].value;
  return values;
}

template <typename Enum, std::size_t N>
std::string_view find_name(const std::array<Named<Enum>, N>& table, Enum value) noexcept {
  for (const auto& row : table) {
    if (row.value == value) return row.name;
  }
  return "unknown";
}

/// Throws Error (invalid_argument): "no role is called `x`", with `what` for "role".
template <typename Enum, std::size_t N>
Enum find_value(const std::array<Named<Enum>, N>& table, std::string_view what,
                std::string_view name) {
  for (const auto& row : table) {
    if (row.name == name) return row.value;
  }
  throw Error(ErrorCode::kInvalidArgument, fmt::format("no {} is called `{}`", what, name));
}

}  // namespace steptape::trace
