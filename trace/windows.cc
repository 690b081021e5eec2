#include "trace/windows.h"

#include <algorithm>
#include <cmath>

namespace steptape::trace {
namespace {

// aten::select.int(self, dim, index), aten::slice.Tensor(self, dim, start, end, step)
constexpr Index kDimension = 1, kFirst = kBeginsAt, kLast = 3, kStep = 4;

bool is_select(const Operator& op) { return op.name == "aten::select" && op.overload == "int"; }

std::int64_t integer_or(const Value& value, std::int64_t otherwise) {
  const auto* integer = std::get_if<std::int64_t>(&value.data);
  return integer == nullptr ? otherwise : *integer;
}

/// The dimension that the op selects in or slices; none where the tensor has no such.
std::optional<std::size_t> dimension_of(const Op& op, const Tensor& base) {
  if (op.inputs.size() <= kDimension) return std::nullopt;
  const std::int64_t dimension = integer_or(op.inputs[kDimension], 0);
  const auto dimensions = static_cast<std::int64_t>(base.sizes.size());
  if (dimension < -dimensions || dimension >= dimensions) return std::nullopt;
  return static_cast<std::size_t>(dimension < 0 ? dimension + dimensions : dimension);
}

}  // namespace

bool gives_windows(const Operator& op) {
  return is_select(op) || (op.name == "aten::slice" && op.overload == "Tensor");
}

bool says_where(const Operator& op, Index argument) {
  return gives_windows(op) && (argument == kFirst || (argument == kLast && !is_select(op)));
}

bool can_give(const Recording& recording, const Op& op, const Tensor& base, const Tensor& given) {
  const bool selects = is_select(recording.operator_of(op));
  const auto dimension = dimension_of(op, base);
  if (!dimension || op.inputs.size() <= (selects ? kFirst : kStep)) return false;
  Tensor expected = base;
  expected.buffer = given.buffer;
  expected.offset = given.offset;
  if (selects) {
    expected.sizes.erase(expected.sizes.begin() + static_cast<std::ptrdiff_t>(*dimension));
    expected.strides.erase(expected.strides.begin() + static_cast<std::ptrdiff_t>(*dimension));
    return expected == given;
  }
  const std::int64_t step = integer_or(op.inputs[kStep], 1);
  if (step < 1 || given.sizes.size() != base.sizes.size()) return false;
  const std::int64_t size = given.sizes[*dimension];
  if (size < 1 || (base.sizes[*dimension] - 1) / step < size - 1) return false;
  std::int64_t stride = 0;
  if (__builtin_mul_overflow(base.strides[*dimension], step, &stride)) return false;
  expected.sizes[*dimension] = size;
  expected.strides[*dimension] = stride;
  return expected == given;
}

WindowOfRun::WindowOfRun(const Recording& recording, const Window& window)
    : buffer_(window.buffer) {
  const Op& op = recording.ops[window.op];
  base_ = &recording.tensors[std::get<TensorRef>(op.inputs[0].data).id];
  is_select_ = is_select(recording.operator_of(op));
  dimension_ = dimension_of(op, *base_).value_or(0);
  const auto number = [&](Index argument) {
    Number found;
    if (const auto* literal = std::get_if<std::int64_t>(&op.inputs[argument].data))
      found.literal = *literal;
    for (const ScalarSite& site : recording.scalars) {
      if (site.op == window.op && site.argument == argument)
        found.formula = &recording.formulas[site.formula];
    }
    return found;
  };
  first_ = number(kFirst);
  if (is_select_) {
    size_ = 1;
    return;
  }
  last_ = number(kLast);
  step_ = integer_or(op.inputs[kStep], 1);
  const Tensor& result = recording.tensors[std::get<TensorRef>(op.outputs[0].data).id];
  size_ = result.sizes[dimension_];
}

std::optional<std::int64_t> WindowOfRun::value_of(const Number& number,
                                                  std::span<const double> leaves) {
  if (number.formula == nullptr) return number.literal;
  constexpr double kLargest = 9007199254740992;  // 2^53
  const double value = evaluate(*number.formula, leaves);
  if (!(std::abs(value) <= kLargest) || std::trunc(value) != value) return std::nullopt;
  return static_cast<std::int64_t>(value);
}

// as aten/src/ATen/native/TensorShape.cpp has select and slice
std::optional<std::int64_t> WindowOfRun::offset(std::span<const double> leaves) const {
  const std::int64_t size = base_->sizes[dimension_];
  const auto from_end = [size](std::int64_t position) {
    return position < 0 ? position + size : position;
  };
  const bool has_first = first_.formula != nullptr || first_.literal;
  const std::optional<std::int64_t> first = has_first ? value_of(first_, leaves) : 0;
  if (!first) return std::nullopt;
  std::int64_t begin = from_end(*first);
  if (is_select_) {
    if (begin < 0 || begin >= size) return std::nullopt;
  } else {
    const bool has_last = last_.formula != nullptr || last_.literal;
    const std::optional<std::int64_t> last = has_last ? value_of(last_, leaves) : size;
    if (!last) return std::nullopt;
    begin = std::clamp<std::int64_t>(begin, 0, size);
    const std::int64_t end = std::clamp(from_end(*last), begin, size);
    const std::int64_t count = end == begin ? 0 : 1 + (end - begin - 1) / step_;
    if (count != size_) return std::nullopt;
  }
  const auto bytes = static_cast<std::int64_t>(bytes_of(base_->dtype));
  return (base_->offset + begin * base_->strides[dimension_]) * bytes;
}

}  // namespace steptape::trace
