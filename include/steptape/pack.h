#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

/// How a step's typed arguments and results become the flat lists that a recording holds.
namespace steptape::pack {

/// One argument of a step: a tensor, or a host value that must stay as it is for a plan to hold.
using Leaf = std::variant<at::Tensor, bool, std::int64_t, double, std::string>;

template <typename T>
inline constexpr bool kNever = false;

template <typename T>
struct Argument {
  static_assert(std::is_arithmetic_v<T> || std::is_enum_v<T>,
                "steptape: a step's arguments are tensors, numbers, enums, strings, and vectors, "
                "arrays, pairs, "
                "tuples and optionals of these; pass anything else by capture and track it with "
                "Session::track");
  static void flatten(const T& value, std::vector<Leaf>& leaves) {
    if constexpr (std::is_same_v<T, bool>) {
      leaves.emplace_back(value);
    } else if constexpr (std::is_floating_point_v<T>) {
      leaves.emplace_back(static_cast<double>(value));
    } else {
      leaves.emplace_back(static_cast<std::int64_t>(value));
    }
  }
};

template <>
struct Argument<at::Tensor> {
  static void flatten(const at::Tensor& value, std::vector<Leaf>& leaves) {
    leaves.emplace_back(value);
  }
};

template <>
struct Argument<std::string> {
  static void flatten(const std::string& value, std::vector<Leaf>& leaves) {
    leaves.emplace_back(value);
  }
};

template <typename T>
struct Argument<std::vector<T>> {
  static void flatten(const std::vector<T>& values, std::vector<Leaf>& leaves) {
    leaves.emplace_back(static_cast<std::int64_t>(values.size()));
    for (const auto& value : values) Argument<T>::flatten(value, leaves);
  }
};

template <typename T>
struct Argument<std::optional<T>> {
  static void flatten(const std::optional<T>& value, std::vector<Leaf>& leaves) {
    leaves.emplace_back(value.has_value());
    if (value) Argument<T>::flatten(*value, leaves);
  }
};

template <typename T, std::size_t N>
struct Argument<std::array<T, N>> {
  static void flatten(const std::array<T, N>& values, std::vector<Leaf>& leaves) {
    for (const auto& value : values) Argument<T>::flatten(value, leaves);
  }
};

template <typename... T>
struct Argument<std::tuple<T...>> {
  static void flatten(const std::tuple<T...>& values, std::vector<Leaf>& leaves) {
    std::apply([&](const auto&... value) { (Argument<T>::flatten(value, leaves), ...); }, values);
  }
};

template <typename A, typename B>
struct Argument<std::pair<A, B>> {
  static void flatten(const std::pair<A, B>& values, std::vector<Leaf>& leaves) {
    Argument<A>::flatten(values.first, leaves);
    Argument<B>::flatten(values.second, leaves);
  }
};

/// A result: tensors alone, since a replay computes nothing else. A host value that a step returns
/// would be yesterday's.
template <typename R>
struct Result {
  static_assert(kNever<R>,
                "steptape: a step returns void, a tensor, or a vector, array, pair or tuple of "
                "tensors; return "
                "the tensor and read its value outside the step");
};

template <>
struct Result<at::Tensor> {
  static std::vector<at::Tensor> flatten(const at::Tensor& value) { return {value}; }
  static at::Tensor unflatten(std::vector<at::Tensor> tensors) { return std::move(tensors.at(0)); }
};

template <>
struct Result<std::vector<at::Tensor>> {
  static std::vector<at::Tensor> flatten(const std::vector<at::Tensor>& value) { return value; }
  static std::vector<at::Tensor> unflatten(std::vector<at::Tensor> tensors) { return tensors; }
};

template <std::size_t N>
struct Result<std::array<at::Tensor, N>> {
  static std::vector<at::Tensor> flatten(const std::array<at::Tensor, N>& value) {
    return {value.begin(), value.end()};
  }
  static std::array<at::Tensor, N> unflatten(std::vector<at::Tensor> tensors) {
    std::array<at::Tensor, N> value;
    for (std::size_t i = 0; i < N; ++i) value[i] = std::move(tensors.at(i));
    return value;
  }
};

template <typename... T>
struct Result<std::tuple<T...>> {
  static_assert((std::is_same_v<T, at::Tensor> && ...), "steptape: a step returns tensors alone");
  static std::vector<at::Tensor> flatten(const std::tuple<T...>& value) {
    return std::apply([](const auto&... tensor) { return std::vector<at::Tensor>{tensor...}; },
                      value);
  }
  static std::tuple<T...> unflatten(std::vector<at::Tensor> tensors) {
    return from(std::move(tensors), std::index_sequence_for<T...>{});
  }

 private:
  template <std::size_t... I>
  static std::tuple<T...> from(std::vector<at::Tensor> tensors, std::index_sequence<I...>) {
    return {std::move(tensors.at(I))...};
  }
};

template <>
struct Result<std::pair<at::Tensor, at::Tensor>> {
  static std::vector<at::Tensor> flatten(const std::pair<at::Tensor, at::Tensor>& value) {
    return {value.first, value.second};
  }
  static std::pair<at::Tensor, at::Tensor> unflatten(std::vector<at::Tensor> tensors) {
    return {std::move(tensors.at(0)), std::move(tensors.at(1))};
  }
};

}  // namespace steptape::pack
