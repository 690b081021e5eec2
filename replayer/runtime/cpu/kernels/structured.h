#pragma once

#include <ATen/TensorIterator.h>
#include <ATen/TensorMeta.h>
#include <ATen/native/TypeProperties.h>

#include <algorithm>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "replayer/runtime/cpu/kernels/preparation.h"
#include "replayer/runtime/cpu/kernels/table.h"

/// ATen's structured kernels, entered after their `meta`: it is run once, when the plan is made,
/// and what it works out (checks, common dtype, the iterator) is kept. The computation is ATen's
/// own code, so its bits are those of the op by construction. There is no memory yet: an iterator
/// takes addresses alone, every other `meta` is run over stand-ins, and where it reads or writes
/// (`baddbmm` copies the bias into its result) there is no kernel, since no run would do that
/// again.
namespace steptape::replayer::cpu {

/// How an argument of a kernel's `impl` is kept between runs, made from a call's, and handed on.
template <typename Argument>
struct Kept;

template <>
struct Kept<const at::Tensor&> {
  at::Tensor value;
  void take(const c10::IValue& from) { value = from.toTensor(); }
  const at::Tensor& get() const { return value; }
};
template <>
struct Kept<const at::Scalar&> {
  at::Scalar value;
  void take(const c10::IValue& from) { value = from.toScalar(); }
  const at::Scalar& get() const { return value; }
};
template <>
struct Kept<at::OptionalTensorRef> {
  std::optional<at::Tensor> value;
  void take(const c10::IValue& from) { value = from.toOptional<at::Tensor>(); }
  at::OptionalTensorRef get() const {
    return value && value->defined() ? at::OptionalTensorRef(*value) : at::OptionalTensorRef();
  }
};
template <>
struct Kept<at::IntArrayRef> {
  std::vector<std::int64_t> value;
  void take(const c10::IValue& from) { value = from.toIntVector(); }
  at::IntArrayRef get() const { return value; }
};
template <>
struct Kept<at::OptionalIntArrayRef> {
  std::optional<std::vector<std::int64_t>> value;
  void take(const c10::IValue& from) {
    value = from.isNone() ? std::nullopt : std::optional(from.toIntVector());
  }
  at::OptionalIntArrayRef get() const {
    return value ? at::OptionalIntArrayRef(*value) : std::nullopt;
  }
};
template <>
struct Kept<std::optional<at::ScalarType>> {
  std::optional<at::ScalarType> value;
  void take(const c10::IValue& from) { value = from.toOptional<at::ScalarType>(); }
  std::optional<at::ScalarType> get() const { return value; }
};
template <>
struct Kept<at::ScalarType> {
  at::ScalarType value{};
  void take(const c10::IValue& from) { value = from.toScalarType(); }
  at::ScalarType get() const { return value; }
};
template <>
struct Kept<c10::string_view> {
  std::string value;
  void take(const c10::IValue& from) { value = from.toStringRef(); }
  c10::string_view get() const { return value; }
};
template <typename Number>
struct KeptNumber {
  Number value{};
  void take(const c10::IValue& from) { value = from.to<Number>(); }
  Number get() const { return value; }
};
template <>
struct Kept<std::int64_t> : KeptNumber<std::int64_t> {};
template <>
struct Kept<double> : KeptNumber<double> {};
template <>
struct Kept<bool> : KeptNumber<bool> {};

/// The result that `meta` wants is not the one that the plan has.
struct OtherResult {};

/// `Op`, with what its `meta` asks of a result handed to `set_result`. `Names` are those of dims,
/// which torch has up to 2.14.
template <typename Op, typename SetOutput = decltype(&at::impl::MetaBase::set_output_strided)>
class WithResults;

template <typename Op, typename... Names>
class WithResults<Op, void (at::impl::MetaBase::*)(std::int64_t, at::IntArrayRef, at::IntArrayRef,
                                                   at::TensorOptions, Names...)> : protected Op {
 private:
  virtual void set_result(std::int64_t index, at::IntArrayRef sizes, at::IntArrayRef strides,
                          const at::TensorOptions& options) = 0;

  void set_output_strided(std::int64_t index, at::IntArrayRef sizes, at::IntArrayRef strides,
                          at::TensorOptions options, Names... names) final {
    set_output_raw_strided(index, sizes, strides, options, names...);
  }
  void set_output_raw_strided(std::int64_t index, at::IntArrayRef sizes, at::IntArrayRef strides,
                              at::TensorOptions options, Names... names) final {
    set_result(index, sizes, strides, options);
    if constexpr (std::is_base_of_v<at::TensorIteratorBase, Op>)
      Op::set_output_raw_strided(index, sizes, strides, options, names...);
  }
};

/// `Op` is at::native::structured_..., whose last `kResults` arguments of `impl` are results.
template <typename Op, std::size_t kResults, typename Impl = decltype(&Op::impl)>
class Structured;

template <typename Op, std::size_t kResults, typename... A>
class Structured<Op, kResults, void (Op::*)(A...)> final : public Kernel, private WithResults<Op> {
 public:
  /// Throws c10::Error or OtherResult where the op is not as it was when it was recorded.
  explicit Structured(const KernelSite& site) : call_(site.call), results_(site.results) {
    for (std::size_t i = 0; i < kArguments; ++i) {
      if (site.varies.at(i)) varying_.push_back(i);
    }
    if constexpr (kIterates) {
      take_all(call_.arguments);
      call_meta(std::make_index_sequence<kArguments>());
      collect_operands(site);
    } else {
      call_meta_without_bytes();
    }
  }

  static Preparation make(const KernelSite& site) {
    if (site.results.size() != kResults) return Preparation::refused("results of another kind");
    if (kIterates && !is_of_one_dtype(site))
      return Preparation::refused("operands of several dtypes");
    if (!kIterates && std::ranges::count(site.varies, true) > 0)
      return Preparation::refused(
          "a number that changes, which the op looks at before it computes");
    try {
      auto made = std::make_unique<Structured>(site);
      if (!made->is_usable_) return Preparation::refused("operands of several dtypes");
      return {std::move(made), {}};
    } catch (const OtherResult&) {
      return Preparation::refused("a result that the op would reshape");
    } catch (const c10::Error& error) {
      if (!StandIns::threw(error)) throw;
      return Preparation::refused("an op that touches memory before it computes");
    }
  }

  void run() override {
    for (const std::size_t i : varying_) take(i, call_.arguments[i]);
    if constexpr (kIterates) {
      for (const Operand& operand : bound_) {
        auto* first =
            static_cast<char*>(operand.tensor.storage().unsafeGetStorageImpl()->mutable_data());
        this->unsafe_replace_operand(operand.position, first + operand.offset);
      }
    }
    call_impl(std::make_index_sequence<sizeof...(A)>());
  }

 private:
  /// An iterator casts what has another dtype than the rest when it is made, and there is nothing
  /// yet to be cast but literals. Integers become floating-point numbers in many ops, and kernels
  /// of half precision change the iterator (binary_kernel_reduced_floating_point).
  static bool is_of_one_dtype(const KernelSite& site) {
    at::native::ResultTypeState state;
    std::optional<at::ScalarType> dtype;
    bool is_good = true;
    for (std::size_t i = 0; i < kArguments && i < site.call.arguments.size(); ++i) {
      const c10::IValue& value = site.call.arguments[i];
      is_good = is_good && !value.isComplexDouble();
      if (!value.isTensor() || !value.toTensor().defined()) continue;
      const at::Tensor tensor = value.toTensor();
      state = at::native::update_result_type_state(tensor, state);
      if (site.is_literal(tensor)) continue;
      is_good = is_good && (!dtype || *dtype == tensor.scalar_type());
      dtype = tensor.scalar_type();
    }
    return is_good && (dtype == at::kFloat || dtype == at::kDouble) &&
           at::native::result_type(state) == *dtype;
  }

  static constexpr std::size_t kArguments = sizeof...(A) - kResults;
  static constexpr bool kIterates = std::is_base_of_v<at::TensorIteratorBase, Op>;

  struct Operand {
    std::int64_t position;
    at::Tensor tensor;
    std::size_t offset;
  };

  template <std::size_t... I>
  void take_at(std::size_t position, const c10::IValue& from, std::index_sequence<I...>) {
    ((I == position ? std::get<I>(kept_).take(from) : void()), ...);
  }
  void take(std::size_t position, const c10::IValue& from) {
    take_at(position, from, std::make_index_sequence<kArguments>());
  }
  void take_all(const std::vector<c10::IValue>& given) {
    for (std::size_t i = 0; i < kArguments; ++i) take(i, given.at(i));
    set_results(std::make_index_sequence<kResults>());
  }
  template <std::size_t... I>
  void set_results(std::index_sequence<I...>) {
    ((std::get<kArguments + I>(kept_).value = results_[I]), ...);
  }
  template <std::size_t... I>
  void call_meta(std::index_sequence<I...>) {
    this->meta(std::get<I>(kept_).get()...);
  }
  void call_meta_without_bytes() {
    StandIns stand_ins;
    std::vector<c10::IValue> arguments;
    for (const c10::IValue& argument : call_.arguments) arguments.push_back(stand_ins.of(argument));
    const std::vector<at::Tensor> real = results_;
    for (at::Tensor& result : results_) result = stand_ins.of(result);
    take_all(arguments);
    call_meta(std::make_index_sequence<kArguments>());
    results_ = real;
    take_all(call_.arguments);
  }
  template <std::size_t... I>
  void call_impl(std::index_sequence<I...>) {
    this->impl(std::get<I>(kept_).get()...);
  }

  /// An iterator over operands of several dtypes holds copies of some, which it cast when it was
  /// made: of a literal that is right for ever, and so is what it made of a number that stays.
  void collect_operands(const KernelSite& site) {
    for (std::int64_t i = 0; i < this->ntensors(); ++i) {
      const at::OperandInfo& operand = this->operands_[static_cast<std::size_t>(i)];
      const bool is_cast = operand.original_tensor_base().defined();
      const at::Tensor& original = is_cast ? operand.original_tensor() : operand.tensor();
      if (!is_given(original)) {
        is_usable_ = is_usable_ && varying_.empty();
      } else if (is_cast) {
        is_usable_ = is_usable_ && i >= this->noutputs() && site.is_literal(original);
      } else {
        bound_.push_back({i, original, original.storage_offset() * original.itemsize()});
      }
    }
  }
  bool is_given(const at::Tensor& tensor) const {
    const auto is_it = [&](const at::Tensor& other) { return other.is_same(tensor); };
    return std::ranges::any_of(results_, is_it) ||
           std::ranges::any_of(call_.arguments, [&](const c10::IValue& argument) {
             return argument.isTensor() && is_it(argument.toTensor());
           });
  }

  void set_result(std::int64_t index, at::IntArrayRef sizes, at::IntArrayRef strides,
                  const at::TensorOptions& options) override {
    const at::Tensor& result = results_.at(static_cast<std::size_t>(index));
    const bool fits = result.sizes() == sizes && (strides.empty() || result.strides() == strides) &&
                      result.scalar_type() == c10::typeMetaToScalarType(options.dtype());
    if (!fits) throw OtherResult();
  }
  const at::Tensor& maybe_get_output(std::int64_t index) override {
    return results_.at(static_cast<std::size_t>(index));
  }

  const Call& call_;
  std::vector<at::Tensor> results_;
  std::tuple<Kept<A>...> kept_;
  std::vector<std::size_t> varying_;
  std::vector<Operand> bound_;  ///< whose addresses are taken anew in each run
  bool is_usable_ = true;
};

}  // namespace steptape::replayer::cpu
