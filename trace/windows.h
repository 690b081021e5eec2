#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "trace/model.h"

/// Views at places that numbers say, of memory that a step finds: `data[i : i + 8]`.
namespace steptape::trace {

/// Whether it is aten::select or aten::slice by numbers.
bool gives_windows(const Operator& op);

/// The argument of such an op that says where its result begins.
inline constexpr Index kBeginsAt = 2;

/// Whether this argument of such an op says where its result begins or ends.
bool says_where(const Operator& op, Index argument);

/// Whether such an op can give `given` of `base`, but for where that begins: in sizes and strides,
/// with arguments that it takes.
bool can_give(const Recording& recording, const Op& op, const Tensor& base, const Tensor& given);

/// A window as a run has it.
class WindowOfRun {
 public:
  /// `window` is one of `recording`, which must outlive this.
  WindowOfRun(const Recording& recording, const Window& window);

  BufferId buffer() const { return buffer_; }
  /// The buffer that it lies in; it may be that of another window, which comes before it.
  BufferId base() const { return base_->buffer; }

  /// Where it begins, in bytes from the start of its base's buffer, where the formulas of its op
  /// have what `leaves` give. None where the op throws there, or gives a tensor of other sizes.
  std::optional<std::int64_t> offset(std::span<const double> leaves) const;

 private:
  /// A formula, or a number as it was recorded; or none, for the default.
  struct Number {
    const Formula* formula = nullptr;
    std::optional<std::int64_t> literal = std::nullopt;
  };
  /// None where it is not an integer.
  static std::optional<std::int64_t> value_of(const Number& number, std::span<const double> leaves);

  BufferId buffer_;
  const Tensor* base_;
  bool is_select_;
  std::size_t dimension_;
  std::int64_t size_;    ///< of the result in that dimension
  Number first_, last_;  ///< the index of a select; what a slice begins and ends with
  std::int64_t step_ = 1;
};

}  // namespace steptape::trace
