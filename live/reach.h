#pragma once

#include <ATen/core/function_schema.h>

#include <cstdint>
#include <span>
#include <string_view>

namespace steptape::live {

/// How far a call of an operator reaches. A plan, and so a trace, calls only those that compute.
enum class Reach : std::uint8_t {
  kComputes,      ///< of aten: from tensors and numbers to tensors and numbers
  kOtherLibrary,  ///< what operators of other libraries do is not known
  kOtherValues,   ///< takes or gives what no trace can hold: a storage, a stream, an object
  kStorage,       ///< changes size or identity of memory that a tensor lies on
  kOutside,       ///< acts on files, the console, an allocator
};

/// Whether a trace can hold every value of this type.
bool has_trace_value(const c10::Type& type);

std::span<const Reach> reaches() noexcept;
Reach reach_of(const c10::FunctionSchema& schema);
/// "computes", "is of another library than aten", ...
std::string_view words_of(Reach reach) noexcept;

}  // namespace steptape::live
