#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <memory>
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

/// A number that a step returns.
using Number = std::variant<bool, std::int64_t, double>;

/// The results of a step, flat: tensors and numbers each in their order.
struct Results {
  std::vector<at::Tensor> tensors;
  std::vector<Number> numbers;
  /// Whatever a front end wants to know of the results besides. A replay gives back that of the
  /// newest call of its variant that ran the function.
  std::shared_ptr<const void> note = nullptr;
};

/// Takes flat results apart again, in the order in which they were put in.
class Unpacking {
 public:
  explicit Unpacking(Results results) : results_(std::move(results)) {}
  at::Tensor tensor() { return std::move(results_.tensors.at(next_tensor_++)); }
  std::vector<at::Tensor> all_tensors() { return std::move(results_.tensors); }
  template <typename T>
  T number() {
    return std::visit([](auto value) { return static_cast<T>(value); },
                      results_.numbers.at(next_number_++));
  }

 private:
  Results results_;
  std::size_t next_tensor_ = 0;
  std::size_t next_number_ = 0;
};

/// A result: tensors, and numbers that the step read from tensors (`loss.item<double>()`), which a
/// replay reads again. A number that the host worked out is refused: a replay could not.
template <typename R>
struct Result {
  static_assert(std::is_arithmetic_v<R>,
                "steptape: a step returns void, tensors, numbers, or an array, pair or tuple of "
                "these, or a vector of tensors");
  static void flatten(const R& value, Results& results) {
    if constexpr (std::is_same_v<R, bool>) {
      results.numbers.emplace_back(value);
    } else if constexpr (std::is_floating_point_v<R>) {
      results.numbers.emplace_back(static_cast<double>(value));
    } else {
      results.numbers.emplace_back(static_cast<std::int64_t>(value));
    }
  }
  static R unflatten(Unpacking& results) { return results.template number<R>(); }
};

template <>
struct Result<at::Tensor> {
  static void flatten(const at::Tensor& value, Results& results) {
    results.tensors.push_back(value);
  }
  static at::Tensor unflatten(Unpacking& results) { return results.tensor(); }
};

template <>
struct Result<std::vector<at::Tensor>> {
  static void flatten(const std::vector<at::Tensor>& value, Results& results) {
    results.tensors = value;
  }
  static std::vector<at::Tensor> unflatten(Unpacking& results) { return results.all_tensors(); }
};

template <typename T, std::size_t N>
struct Result<std::array<T, N>> {
  static void flatten(const std::array<T, N>& values, Results& results) {
    for (const auto& value : values) Result<T>::flatten(value, results);
  }
  static std::array<T, N> unflatten(Unpacking& results) {
    std::array<T, N> values{};
    for (auto& value : values) value = Result<T>::unflatten(results);
    return values;
  }
};

template <typename... T>
struct Result<std::tuple<T...>> {
  static_assert((!std::is_same_v<T, std::vector<at::Tensor>> && ...),
                "steptape: a vector of tensors is a step's only result");
  static void flatten(const std::tuple<T...>& values, Results& results) {
    std::apply([&](const auto&... value) { (Result<T>::flatten(value, results), ...); }, values);
  }
  static std::tuple<T...> unflatten(Unpacking& results) {
    // braces: from left to right
    return std::tuple<T...>{Result<T>::unflatten(results)...};
  }
};

template <typename A, typename B>
struct Result<std::pair<A, B>> {
  static void flatten(const std::pair<A, B>& value, Results& results) {
    Result<A>::flatten(value.first, results);
    Result<B>::flatten(value.second, results);
  }
  static std::pair<A, B> unflatten(Unpacking& results) {
    A first = Result<A>::unflatten(results);
    return {std::move(first), Result<B>::unflatten(results)};
  }
};

}  // namespace steptape::pack
