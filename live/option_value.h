#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/Type.h>
#include <torch/enum.h>
#include <torch/expanding_array.h>
#include <torch/nn/modules/container/any.h>
#include <torch/nn/pimpl.h>

#include <concepts>
#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <variant>
#include <vector>

#include "live/module_options.h"
#include "trace/value.h"

namespace steptape::live {

/// An option of a module in trace's words, by its C++ type. A type that no overload takes does not
/// compile.
class OptionValue {
 public:
  template <typename Number>
  requires std::same_as<Number, bool> || std::same_as<Number, std::int64_t>
  static trace::Value of(Number value) { return {value}; }
  static trace::Value of(std::same_as<double> auto value) { return {trace::Real{value}}; }
  static trace::Value of(const std::string& value) { return {value}; }

  /// torch::kMean and its kin: "kMean".
  template <typename Enumerator>
  requires std::invocable<torch::enumtype::_compute_enum_name, const Enumerator&>
  static trace::Value of(const Enumerator& value) {
    return {torch::enumtype::_compute_enum_name()(value)};
  }

  template <typename... Alternatives>
  static trace::Value of(const std::variant<Alternatives...>& value) {
    return std::visit([](const auto& held) { return of(held); }, value);
  }
  template <typename T>
  static trace::Value of(const std::optional<T>& value) {
    return value.has_value() ? of(*value) : trace::Value{trace::None{}};
  }
  template <typename First, typename Second>
  static trace::Value of(const std::pair<First, Second>& value) {
    return {trace::List{of(value.first), of(value.second)}};
  }
  template <typename T>
  static trace::Value of(const std::vector<T>& value) {
    return of_items(value);
  }
  template <std::size_t D, typename T>
  static trace::Value of(const torch::ExpandingArray<D, T>& value) {
    return of_items(*value);
  }

  static trace::Value of(const at::Tensor& value) {
    return of_object(value.defined(), "torch::Tensor");
  }
  template <typename Signature>
  static trace::Value of(const std::function<Signature>& value) {
    return of_object(value != nullptr, "std::function");
  }
  static trace::Value of(const torch::nn::AnyModule& value) { return of_module(value); }
  template <typename Module>
  static trace::Value of(const torch::nn::ModuleHolder<Module>& value) {
    return of_module(value);
  }

 private:
  template <typename Items>
  static trace::Value of_items(const Items& items) {
    using Item = typename Items::value_type;
    if constexpr (std::same_as<Item, std::int64_t>) {
      return {trace::IntList(items.begin(), items.end())};
    } else {
      trace::List list;
      for (const Item& item : items) list.push_back(of(item));
      return {std::move(list)};
    }
  }
  static trace::Value of_object(bool is_there, std::string type) {
    if (!is_there) return {trace::None{}};
    return {trace::Opaque{std::move(type)}};
  }
  template <typename Holder>
  static trace::Value of_module(const Holder& holder) {
    if (holder.is_empty()) return {trace::None{}};
    const torch::nn::Module& module = *holder.ptr();
    return of_object(true, c10::demangle(typeid(module).name()));
  }
};

/// The bytes that tell whether an option of a module is what it was, by its C++ type: its own, then
/// those that it points to. A type that no overload takes does not compile.
class OptionBytes {
 public:
  using Spans = std::vector<std::span<const std::byte>>;

  template <typename T>
  static Spans of(const T& object) {
    Spans spans{std::as_bytes(std::span(&object, 1))};
    follow(object, spans);
    return spans;
  }

 private:
  template <typename T>
  requires std::is_trivially_copyable_v<T>
  static void follow(const T&, Spans&) {}
  // Of these, which one it is, not what it holds.
  static void follow(const at::Tensor&, Spans&) {}
  static void follow(const torch::nn::AnyModule&, Spans&) {}
  template <typename Module>
  static void follow(const torch::nn::ModuleHolder<Module>&, Spans&) {}
  template <typename Signature>
  static void follow(const std::function<Signature>&, Spans&) {}

  static void follow(const std::string& object, Spans& spans) { follow_items(object, spans); }
  template <typename T>
  static void follow(const std::vector<T>& object, Spans& spans) {
    follow_items(object, spans);
  }
  template <typename First, typename Second>
  static void follow(const std::pair<First, Second>& object, Spans& spans) {
    follow(object.first, spans);
    follow(object.second, spans);
  }
  template <typename T>
  static void follow(const std::optional<T>& object, Spans& spans) {
    if (object.has_value()) follow(*object, spans);
  }
  template <typename... Alternatives>
  static void follow(const std::variant<Alternatives...>& object, Spans& spans) {
    std::visit([&spans](const auto& held) { follow(held, spans); }, object);
  }

  template <typename Items>
  static void follow_items(const Items& items, Spans& spans) {
    if (items.empty()) return;
    spans.push_back(std::as_bytes(std::span(items)));
    for (const auto& item : items) follow(item, spans);
  }
};

/// Collects what a module has: the objects themselves, by their C++ types.
class ModuleOptionList {
 public:
  template <typename T>
  void option(std::string name, const T& object) {
    add(std::move(name), ModuleOptionKind::kOption, object);
  }
  template <typename T>
  void member(std::string name, const T& object) {
    add(std::move(name), ModuleOptionKind::kMember, object);
  }
  std::vector<ModuleOption> take() { return std::move(options_); }

 private:
  template <typename T>
  void add(std::string name, ModuleOptionKind kind, const T& object) {
    options_.push_back({std::move(name), kind, &object, &read<T>, OptionBytes::of(object)});
  }
  template <typename T>
  static trace::Value read(const void* object) {
    return OptionValue::of(*static_cast<const T*>(object));
  }

  std::vector<ModuleOption> options_;
};

}  // namespace steptape::live
