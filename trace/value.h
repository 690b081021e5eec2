#pragma once

#include <bit>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "trace/dtype.h"

namespace steptape::trace {

/// Index of a tensor in Recording::tensors. The undefined tensor has the id kNoTensor.
using TensorId = std::uint32_t;
inline constexpr TensorId kNoTensor = 0xffffffff;

struct None {
  friend bool operator==(const None&, const None&) = default;
};

/// A double compared by its IEEE bits: 0.0 and -0.0 differ, a NaN equals itself.
struct Real {
  double value = 0;
  friend bool operator==(const Real& a, const Real& b) noexcept {
    return std::bit_cast<std::uint64_t>(a.value) == std::bit_cast<std::uint64_t>(b.value);
  }
};

struct Complex {
  Real real, imag;
  friend bool operator==(const Complex&, const Complex&) = default;
};

struct TensorRef {
  TensorId id = kNoTensor;
  friend bool operator==(const TensorRef&, const TensorRef&) = default;
};

/// A random generator by its path: "default" is LibTorch's CPU generator, others are tracked.
/// An untracked generator has the path "".
struct GeneratorRef {
  std::string path;
  friend bool operator==(const GeneratorRef&, const GeneratorRef&) = default;
};

/// An argument no trace can hold (a Python object, a custom class, a stream); `type` names it.
struct Opaque {
  std::string type;
  friend bool operator==(const Opaque&, const Opaque&) = default;
};

struct Value;
using IntList = std::vector<std::int64_t>;
using List = std::vector<Value>;

/// One argument or return of an op, one hyperparameter, one fact. Dtypes, layouts and memory
/// formats are ints, as they are on LibTorch's boxed stack.
struct Value {
  std::variant<None, bool, std::int64_t, Real, Complex, std::string, Device, TensorRef,
               GeneratorRef, Opaque, IntList, List>
      data;
  friend bool operator==(const Value&, const Value&) = default;
};

/// Whether it is one number: bool, integer or real.
inline bool is_number(const Value& value) noexcept {
  return std::holds_alternative<bool>(value.data) ||
         std::holds_alternative<std::int64_t>(value.data) ||
         std::holds_alternative<Real>(value.data);
}
/// Whether it is one number that a double holds exactly, and that no other rounds to: integers
/// below 2^53 in magnitude.
inline bool is_exact_number(const Value& value) noexcept {
  const auto* integer = std::get_if<std::int64_t>(&value.data);
  constexpr std::int64_t kMost = (std::int64_t{1} << 53) - 1;
  return is_number(value) && (integer == nullptr || (*integer <= kMost && *integer >= -kMost));
}
/// The number as a double; 0 for what is none.
inline double number_of(const Value& value) noexcept {
  if (const auto* flag = std::get_if<bool>(&value.data)) return *flag ? 1 : 0;
  if (const auto* integer = std::get_if<std::int64_t>(&value.data)) {
    return static_cast<double>(*integer);
  }
  const auto* real = std::get_if<Real>(&value.data);
  return real == nullptr ? 0 : real->value;
}

/// kNoTensor for anything else.
inline TensorId tensor_in(const Value& value) noexcept {
  const auto* tensor = std::get_if<TensorRef>(&value.data);
  return tensor == nullptr ? kNoTensor : tensor->id;
}

/// Calls `visit(TensorId)` for every tensor in `value`, kNoTensor included, in order.
template <typename Visit>
void for_each_tensor(const Value& value, Visit&& visit) {
  if (const auto* tensor = std::get_if<TensorRef>(&value.data)) {
    visit(tensor->id);
  } else if (const auto* list = std::get_if<List>(&value.data)) {
    for (const Value& item : *list) for_each_tensor(item, visit);
  }
}
template <typename Visit>
void for_each_tensor(const std::vector<Value>& values, Visit&& visit) {
  for (const Value& value : values) for_each_tensor(value, visit);
}

inline bool holds_tensor(const Value& value) {
  bool holds = false;
  for_each_tensor(value, [&holds](TensorId) { holds = true; });
  return holds;
}

// Single elements of tensors as host numbers.

/// The element at `bytes`; None for a dtype that no host number stands for (16-bit floats,
/// complex).
Value element_of(const std::byte* bytes, DType dtype) noexcept;

/// Writes `number` as an element, rounded as a C++ conversion rounds. False, with nothing written,
/// for a dtype that element_of gives None for, and for a number beyond what a whole element holds.
bool put_element(double number, DType dtype, std::byte* bytes) noexcept;

/// Whether `content` is the one element that put_element writes for `number`.
bool is_element(double number, DType dtype, std::span<const std::byte> content) noexcept;

}  // namespace steptape::trace
