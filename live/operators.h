#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/function_schema.h>
#include <ATen/core/stack.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trace/model.h"

namespace steptape::live {

/// How far a call of an operator reaches. A plan, and so a trace, calls only those that compute or
/// exchange.
enum class Reach : std::uint8_t {
  kComputes,      ///< of aten: from tensors and numbers to tensors and numbers
  kExchanges,     ///< a collective: exchanges tensors with the other processes of a group
  kOtherLibrary,  ///< what operators of other libraries do is not known
  kOtherValues,   ///< takes or gives what no trace can hold: a storage, a stream, an object
  kStorage,       ///< changes size or identity of memory that a tensor lies on
  kOutside,       ///< acts on files, the console, an allocator
};

/// Whether a trace can hold every value of this type, of those that operators of aten take.
bool has_trace_value(const c10::Type& type);

Reach reach_of(const c10::FunctionSchema& schema);
/// "computes", "is of another library than aten", ...
std::string_view words_of(Reach reach) noexcept;

// What is known about an operator, in this order of trust: its schema's aliasing, its `at::Tag`s,
// and a short table of exceptions (effects.cc), each row with the reason it is needed. There is no
// code per operator anywhere else.

/// What calling an operator does, derived once per operator and cached.
struct Effects {
  /// Arguments whose bytes it writes: annotated `(a!)`, `out=`, or known from the table.
  std::vector<bool> writes;
  /// Arguments it writes though the schema does not say so (a subset of `writes`).
  std::vector<bool> writes_unannotated;
  /// Every return aliases an argument, nothing is written: geometry alone.
  bool is_view = false;
  /// Only the geometry of its first argument changes (`t_`, `squeeze_`, `detach_`): tag
  /// inplace_view.
  bool is_inplace_view = false;
  /// Makes memory and leaves it unwritten: the `empty` family.
  bool makes_unwritten = false;
  /// Looks at an argument's geometry only (`zeros_like`, `new_empty`): its bytes are not read.
  bool reads_geometry_only = false;
  /// In place, but what it overwrites is not read first: `copy_`, `fill_`, `zero_`.
  bool overwrites = false;
  bool is_random = false;     ///< draws from a generator: tag nondeterministic_seeded
  bool is_host_read = false;  ///< a value of a tensor reaches the host: tag data_dependent_output
  bool is_dynamic_shape =
      false;  ///< the shape of a result may depend on bytes: tag dynamic_output_shape
  bool may_throw_on_data =
      true;  ///< may raise depending on the bytes it reads; false for pointwise arithmetic
  Reach reach = Reach::kOtherLibrary;
  /// Every process of a group issues it, in one order (live/collectives.h).
  bool is_collective() const { return reach == Reach::kExchanges; }
  /// A plan may call it.
  bool is_replayable() const { return reach == Reach::kComputes || is_collective(); }
};

const Effects& effects_of(const c10::OperatorHandle& op);

/// Arguments whose numbers may change from call to call and change nothing but the bytes of
/// results: declared `Scalar`, `float` or a list of them, of an op that makes no view and is not in
/// the table for sizes. Sizes, flags and positions are declared `int` and `bool`.
std::vector<bool> arguments_that_may_follow(const c10::OperatorHandle& op);

/// The operator of this process, or none.
std::optional<c10::OperatorHandle> find_operator(const trace::Operator& op);
trace::Operator describe(const c10::OperatorHandle& op);

}  // namespace steptape::live
