#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/modules/container/any.h>
#include <torch/nn/pimpl.h>

#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace steptape::live {

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

}  // namespace steptape::live
