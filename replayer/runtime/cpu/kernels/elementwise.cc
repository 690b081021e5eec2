#include "replayer/runtime/cpu/kernels/elementwise.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <initializer_list>
#include <iterator>
#include <optional>

#include "replayer/runtime/cpu/kernels/floats.h"
#include "replayer/runtime/cpu/kernels/products/sgemm.h"
#include "replayer/runtime/cpu/kernels/table.h"

namespace steptape::replayer::cpu {
namespace {

double number_at(const void* element, at::ScalarType dtype) {
  switch (dtype) {
    case at::kFloat:
      return *static_cast<const float*>(element);
    case at::kDouble:
      return *static_cast<const double*>(element);
    default:
      // as ATen converts it: a double between would be a second rounding
      return static_cast<float>(*static_cast<const std::int64_t*>(element));
  }
}

double number_in(const c10::IValue& value) {
  if (value.isDouble()) return value.toDouble();
  if (value.isInt()) return static_cast<float>(value.toInt());
  return value.toBool() ? 1.0 : 0.0;
}

}  // namespace

ElementNumber::ElementNumber(at::Tensor tensor, bool is_fixed)
    : tensor_(std::move(tensor)),
      dtype_(tensor_.scalar_type()),
      element_(is_fixed ? elements_of(tensor_) : nullptr) {}

double ElementNumber::exact() const {
  if (element_ != nullptr) return number_at(element_, dtype_);
  if (tensor_.defined()) return number_at(elements_of(tensor_), dtype_);
  if (argument_ == nullptr) return literal_;
  if (item_ < 0) return number_in(*argument_);
  return number_in(argument_->toListRef()[static_cast<std::size_t>(item_)]);
}

bool ElementNumber::take(float& number) const {
  const double value = exact();
  number = static_cast<float>(value);
  return !std::isnan(value) && (std::isinf(value) || std::isfinite(number));
}

ElementwiseKernel::ElementwiseKernel(std::vector<ElementOp> ops, const Call& call,
                                     std::vector<at::Tensor> results)
    : ops_(std::move(ops)), numbers_(ops_.size()), call_(call), results_(std::move(results)) {}

void ElementwiseKernel::run() {
  for (std::size_t i = 0; i < ops_.size(); ++i) {
    if (!ops_[i].take_numbers(numbers_[i])) return dispatch(call_, results_);
  }
  for (std::size_t i = 0; i < ops_.size(); ++i) {
    const ElementOp& op = ops_[i];
    elements::Operands operands{};
    operands.out = writable_floats_of(op.out);
    for (std::size_t k = 0; k < op.in.size(); ++k) {
      if (op.in[k].defined()) operands.in[k] = floats_of(op.in[k]);
    }
    std::ranges::copy(numbers_[i], operands.number);
    op.function(operands, op.count);
  }
}

namespace {

/// MKL's square root, which is not always that of the processor's instruction, is what ATen calls.
/// It takes fifteen times as long for a zero as for other numbers, and second moments of what no
/// gradient reaches, such as rows of an embedding, are zeros. The root of a zero is itself; roots
/// of what stands beside zeros are taken with ones in their places.
void square_root(const elements::Operands& operands, std::int64_t count) {
  // to consider other threads takes MKL longer than the roots of a small tensor
  const OneThread alone;
  constexpr std::int64_t kBlock = 1024;
  alignas(64) std::array<float, kBlock> roots;
  const float* in = operands.in[0];
  float* out = operands.out;
  for (std::int64_t done = 0; done < count; done += kBlock, in += kBlock, out += kBlock) {
    const std::int64_t n = std::min(kBlock, count - done);
    const std::int64_t zeros = elements::count_zeros(in, n);
    if (zeros == 0) {
      blas().square_root(static_cast<int>(n), in, out, Blas::kMode);
      continue;
    }
    elements::put_ones_for_zeros(in, roots.data(), n);
    if (zeros < n) blas().square_root(static_cast<int>(n), roots.data(), roots.data(), Blas::kMode);
    elements::put_zeros_back(in, roots.data(), out, n);
  }
}

/// Alone for the same reason.
void tanh(const elements::Operands& operands, std::int64_t count) {
  const OneThread alone;
  blas().tanh(static_cast<int>(count), operands.in[0], operands.out, Blas::kMode);
}

bool is_number(const at::Tensor& tensor) {
  const auto dtype = tensor.scalar_type();
  return tensor.dim() == 0 && (dtype == at::kFloat || dtype == at::kDouble || dtype == at::kLong);
}

/// Same shape, same strides, nothing between the elements.
bool lies_like(const at::Tensor& tensor, const at::Tensor& out) {
  return tensor.scalar_type() == at::kFloat && tensor.sizes() == out.sizes() &&
         (tensor.strides() == out.strides() || (tensor.is_contiguous() && out.is_contiguous()));
}

/// The same elements, or none of them.
bool are_apart_or_one(const at::Tensor& a, const at::Tensor& out) {
  if (a.storage().unsafeGetStorageImpl() != out.storage().unsafeGetStorageImpl()) return true;
  const std::int64_t distance = std::abs(a.storage_offset() - out.storage_offset());
  return distance == 0 || distance >= out.numel();
}

/// Puts one op of a call together; `item` of arguments and results that are lists.
class Builder {
 public:
  Builder(const KernelSite& site, std::int64_t item)
      : site_(site), item_(item), out_(site.results.at(item < 0 ? 0 : item)) {
    op_.out = out_;
    op_.count = out_.numel();
    is_good_ = out_.scalar_type() == at::kFloat && out_.is_non_overlapping_and_dense() &&
               op_.count > 0 && op_.count <= INT32_MAX && is_for_one_thread(op_.count);
  }

  Builder& function(elements::Function* function) {
    op_.function = function;
    return *this;
  }
  Builder& in(std::size_t slot, std::size_t argument) {
    const std::optional<at::Tensor> tensor = tensor_at(argument);
    is_good_ = is_good_ && tensor && lies_like(*tensor, out_) && are_apart_or_one(*tensor, out_);
    if (is_good_) op_.in[slot] = *tensor;
    return *this;
  }
  Builder& number(std::size_t slot, std::size_t argument) {
    const c10::IValue& value = site_.call.arguments.at(argument);
    if (const std::optional<at::Tensor> tensor = tensor_at(argument)) {
      is_good_ = is_good_ && is_number(*tensor);
      // one that the op itself writes
      is_good_ = is_good_ &&
                 tensor->storage().unsafeGetStorageImpl() != out_.storage().unsafeGetStorageImpl();
      if (is_good_) op_.numbers[slot] = ElementNumber(*tensor, site_.is_fixed(*tensor));
      float literal = 0;
      if (is_good_ && site_.is_literal(*tensor) && op_.numbers[slot].take(literal)) {
        op_.numbers[slot] = ElementNumber(literal);
      }
      return *this;
    }
    const bool is_list = value.isList();
    const c10::IValue& each =
        is_list ? value.toListRef().at(static_cast<std::size_t>(item_)) : value;
    is_good_ = is_good_ && (each.isDouble() || each.isInt() || each.isBool());
    if (is_good_ && site_.varies.at(argument)) {
      op_.numbers[slot] = ElementNumber(value, is_list ? item_ : -1);
    } else if (is_good_) {
      const auto literal = static_cast<float>(number_in(each));
      op_.numbers[slot] = ElementNumber(literal);
      is_good_ = !std::isnan(literal);
    }
    return *this;
  }
  /// Of the first number.
  Builder& unfit(float number) {
    op_.unfit = number;
    float literal = 0;
    const bool is_literal = !op_.numbers[0].varies();
    return require(!is_literal || (op_.numbers[0].take(literal) && literal != number));
  }
  Builder& constant(std::size_t slot, float literal) {
    op_.numbers[slot] = ElementNumber(literal);
    return *this;
  }
  Builder& require(bool is_good) {
    is_good_ = is_good_ && is_good;
    return *this;
  }

  /// Whether the argument is a number, or a tensor that stands for one.
  bool is_number_at(std::size_t argument) const {
    const std::optional<at::Tensor> tensor = tensor_at(argument);
    if (!tensor) return true;
    return tensor->dim() == 0 &&
           (out_.dim() > 0 || tensor->unsafeGetTensorImpl()->is_wrapped_number());
  }
  bool has_no_dimensions(std::size_t argument) const {
    const std::optional<at::Tensor> tensor = tensor_at(argument);
    return tensor && tensor->dim() == 0;
  }
  /// Of an argument that never changes.
  std::optional<double> literal(std::size_t argument) const {
    const c10::IValue& value = site_.call.arguments.at(argument);
    if (site_.varies.at(argument) || !value.isScalar()) return std::nullopt;
    return value.toScalar().toDouble();
  }

  std::optional<ElementOp> done() const {
    return is_good_ && op_.function != nullptr ? std::optional(op_) : std::nullopt;
  }

 private:
  std::optional<at::Tensor> tensor_at(std::size_t argument) const {
    const c10::IValue& value = site_.call.arguments.at(argument);
    if (value.isTensor()) return value.toTensor();
    if (!value.isTensorList()) return std::nullopt;
    return value.toTensorList().get(static_cast<std::size_t>(item_));
  }

  const KernelSite& site_;
  std::int64_t item_;
  at::Tensor out_;
  ElementOp op_;
  bool is_good_;
};

using Build = void (*)(Builder& builder);

/// How operators are built, whatever their overload: by what their arguments are.
/// Of a number ATen takes another way with factors other than 1.
void build_add(Builder& b) {
  if (b.is_number_at(1)) {
    b.function(elements::add_number).in(0, 0).number(0, 1).constant(1, 1.0F);
    b.require(b.literal(2) == 1);
  } else {
    b.function(elements::add).in(0, 0).in(1, 1).number(0, 2);
  }
}
void build_sub(Builder& b) {
  if (b.is_number_at(1)) {
    b.function(elements::subtract_number).in(0, 0).number(0, 1).constant(1, 1.0F);
    b.require(b.literal(2) == 1);
  } else {
    b.function(elements::subtract).in(0, 0).in(1, 1).number(0, 2);
  }
}
/// The same tensor to each of a list: of others than those without dimensions the op throws.
void build_add_to_each(Builder& b) {
  build_add(b);
  b.require(b.has_no_dimensions(1));
}
/// Without an alpha: of lists.
void build_plain_add(Builder& b) {
  b.function(elements::add_number).in(0, 0).number(0, 1).constant(1, 1.0F);
}
/// By a number. Of two tensors, where two NaNs meet, ATen's kernels leave now the one and now the
/// other, by their place in the vector: no kernel of ours leaves those bits, and so for
/// tanh_backward.
void build_scale(Builder& b) {
  b.function(elements::scale).in(0, 0).number(0, 1).require(b.is_number_at(1));
}
void build_div(Builder& b) {
  if (b.is_number_at(1)) {
    b.function(elements::divide_by).in(0, 0).number(0, 1);
  } else {
    b.function(elements::divide).in(0, 0).in(1, 1);
  }
}
void build_addcmul(Builder& b) {
  b.function(elements::addcmul).in(0, 0).in(1, 1).in(2, 2).number(0, 3);
}
void build_addcdiv(Builder& b) {
  b.function(elements::addcdiv).in(0, 0).in(1, 1).in(2, 2).number(0, 3);
}
/// By the weight 1 ATen adds a zero to the end, whose sign is another one where whole vectors are
/// than in what is left after them.
void build_lerp(Builder& b) {
  b.function(elements::lerp).in(0, 0).in(1, 1).number(0, 2).unfit(1.0F);
}
void build_neg(Builder& b) { b.function(elements::negate).in(0, 0); }
void build_reciprocal(Builder& b) { b.function(elements::reciprocal).in(0, 0); }
void build_relu(Builder& b) { b.function(elements::relu).in(0, 0); }
void build_sqrt(Builder& b) {
  b.function(square_root).in(0, 0).require(blas().square_root != nullptr);
}
void build_tanh(Builder& b) { b.function(tanh).in(0, 0).require(blas().tanh != nullptr); }
void build_threshold_backward(Builder& b) {
  b.function(elements::mask_below).in(0, 0).in(1, 1).number(0, 2);
}
void build_sigmoid_backward(Builder& b) { b.function(elements::sigmoid_slope).in(0, 0).in(1, 1); }
void build_clone(Builder& b) { b.function(elements::copy).in(0, 0); }
/// aten::ones_like(self, ...), of which only the shape counts
void build_ones(Builder& b) { b.function(elements::fill).constant(0, 1.0F); }
void build_zeros(Builder& b) { b.function(elements::fill).constant(0, 0.0F); }
/// aten::copy_(self, src, non_blocking)
void build_copy(Builder& b) { b.function(elements::copy).in(0, 1); }

template <Build kBuild>
Preparation make(const KernelSite& site) {
  if (site.results.empty()) return Preparation::refused("no results");
  const bool is_list = !site.call.arguments.empty() && site.call.arguments[0].isTensorList();
  std::vector<ElementOp> ops;
  for (std::size_t item = 0; item < (is_list ? site.results.size() : 1); ++item) {
    Builder builder(site, is_list ? static_cast<std::int64_t>(item) : -1);
    kBuild(builder);
    std::optional<ElementOp> op = builder.done();
    if (!op) return Preparation::refused("operands that are no float32 elements side by side");
    ops.push_back(*std::move(op));
  }
  return {std::make_unique<ElementwiseKernel>(std::move(ops), site.call, site.results), {}};
}

template <Build kBuild>
void add(KernelTable& table, std::initializer_list<std::string_view> names) {
  for (const std::string_view name : names) table.add(name, &with_atens_vectors<make<kBuild>>);
}

template <Build kBuild>
void add_filling(KernelTable& table, std::initializer_list<std::string_view> names) {
  for (const std::string_view name : names)
    table.add_filling(name, &with_atens_vectors<make<kBuild>>);
}

}  // namespace

void add_elementwise_kernels(KernelTable& table) {
  add_filling<build_add>(table, {"aten::add.Scalar"});
  add_filling<build_sub>(table, {"aten::sub.Scalar"});
  add_filling<build_scale>(table, {"aten::mul.Scalar"});
  add_filling<build_div>(table, {"aten::div.Scalar"});
  add_filling<build_relu>(table, {"aten::relu"});
  add_filling<build_clone>(table, {"aten::clone"});
  add_filling<build_ones>(table, {"aten::ones_like", "aten::ones"});
  add_filling<build_zeros>(table, {"aten::zeros_like", "aten::zeros", "aten::new_zeros"});
  add_filling<build_sqrt>(table, {"aten::_foreach_sqrt"});
  add_filling<build_neg>(table, {"aten::_foreach_neg"});
  add_filling<build_scale>(table, {"aten::_foreach_mul.Scalar", "aten::_foreach_mul.ScalarList"});
  add<build_add>(table, {"aten::add.out", "aten::add_.Tensor", "aten::add_.Scalar"});
  add<build_sub>(table, {"aten::sub.out", "aten::sub_.Tensor", "aten::sub_.Scalar"});
  add<build_scale>(table, {"aten::mul.out", "aten::mul_.Tensor", "aten::mul_.Scalar"});
  add<build_div>(table, {"aten::div.out", "aten::div_.Tensor", "aten::div_.Scalar"});
  add<build_addcmul>(table, {"aten::addcmul.out", "aten::addcmul_"});
  add<build_addcdiv>(table, {"aten::addcdiv.out", "aten::addcdiv_"});
  add<build_lerp>(table, {"aten::lerp.Scalar_out", "aten::lerp_.Scalar"});
  add<build_neg>(table, {"aten::neg.out", "aten::neg_"});
  add<build_reciprocal>(table, {"aten::reciprocal.out", "aten::reciprocal_"});
  add<build_relu>(table, {"aten::relu_"});
  add<build_sqrt>(table, {"aten::sqrt.out", "aten::sqrt_"});
  add<build_tanh>(table, {"aten::tanh.out", "aten::tanh_"});
  add<build_threshold_backward>(table, {"aten::threshold_backward.grad_input"});
  add<build_sigmoid_backward>(table, {"aten::sigmoid_backward.grad_input"});
  add<build_copy>(table, {"aten::copy_"});
  add<build_add>(table, {"aten::_foreach_add_.List"});
  add<build_add_to_each>(table, {"aten::_foreach_add_.Tensor"});
  add<build_plain_add>(table, {"aten::_foreach_add_.Scalar", "aten::_foreach_add_.ScalarList"});
  add<build_scale>(table, {"aten::_foreach_mul_.Scalar", "aten::_foreach_mul_.ScalarList"});
  add<build_div>(table, {"aten::_foreach_div_.Scalar", "aten::_foreach_div_.ScalarList",
                         "aten::_foreach_div_.List"});
  add<build_addcmul>(table,
                     {"aten::_foreach_addcmul_.Scalar", "aten::_foreach_addcmul_.ScalarList"});
  add<build_addcdiv>(table,
                     {"aten::_foreach_addcdiv_.Scalar", "aten::_foreach_addcdiv_.ScalarList"});
  add<build_lerp>(table, {"aten::_foreach_lerp_.Scalar"});
  add<build_sqrt>(table, {"aten::_foreach_sqrt_"});
  add<build_neg>(table, {"aten::_foreach_neg_"});
}

}  // namespace steptape::replayer::cpu
