#include "tests/simulated_cuda/call.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/native/TypeProperties.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/scalar_tensor.h>

#include <algorithm>
#include <cmath>
#include <cstring>

namespace steptape::tests::simulated {
namespace {

c10::TypePtr without_optional(const c10::TypePtr& type) {
  const auto optional = type->cast<c10::OptionalType>();
  return optional ? optional->getElementType() : type;
}

bool is_number(const c10::TypePtr& type) {
  return type->kind() == c10::TypeKind::NumberType || type->kind() == c10::TypeKind::FloatType;
}

bool is_number_list(const c10::TypePtr& type) {
  const auto list = type->cast<c10::ListType>();
  return list && list->getElementType()->kind() == c10::TypeKind::NumberType;
}

at::ScalarType compute_type(const torch::jit::Stack& arguments) {
  at::native::ResultTypeState state;
  const auto add = [&](const at::Tensor& tensor) {
    if (tensor.defined()) state = at::native::update_result_type_state(tensor, state);
  };
  bool is_any = false;
  for (const auto& value : arguments) {
    if (value.isTensor()) add(value.toTensor());
    if (value.isTensorList())
      for (const at::Tensor& tensor : value.toTensorVector()) add(tensor);
    if (value.isScalar()) state = at::native::update_result_type_state(value.toScalar(), state);
    is_any |= value.isTensor() || value.isTensorList() || value.isScalar();
  }
  return is_any ? at::native::result_type(state) : at::kFloat;
}

/// `index` and its relatives take host tensors as indices: LibTorch copies them to the device.
bool takes_host_indices(const std::string& name) { return name.find("index") != std::string::npos; }

/// A copy without a Python object. The device's thread destroys it, and must not need the
/// interpreter's lock for that: the thread that waits for the device may hold it.
at::Tensor copy_without_python(const at::Tensor& tensor) {
  const c10::impl::ExcludeDispatchKeyGuard no_python(c10::python_ks);
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  return tensor.clone();
}

}  // namespace

at::Tensor View::over(void* address) const {
  at::Tensor tensor = at::from_blob(address, sizes, strides, at::TensorOptions().dtype(dtype));
  tensor._set_conj(is_conj);
  tensor._set_neg(is_neg);
  return tensor;
}

Call::Call(const c10::FunctionSchema& schema, const torch::jit::Stack& arguments, NumberRule rule)
    : schema_(schema), rule_(rule), compute_(compute_type(arguments)) {
  if (rule == NumberRule::kReciprocal && at::isIntegralType(compute_, true))
    compute_ = at::typeMetaToScalarType(at::get_default_dtype());
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const c10::IValue& value = arguments[i];
    const c10::TypePtr type = without_optional(schema.arguments()[i].type());
    Slot slot;
    if (value.isTensor()) {
      take(slot, value.toTensor(), rule == NumberRule::kReciprocal && i == 1);
    } else if (value.isTensorList()) {
      for (const at::Tensor& tensor : value.toTensorVector()) take(slot, tensor, false);
      slot.constant = value;
    } else if (value.isOptionalTensorList()) {
      for (const auto& tensor : value.toOptionalTensorVector())
        take(slot, tensor.value_or(at::Tensor()), false);
      slot.constant = value;
    } else if (is_number(type) && value.isScalar() && !value.isComplexDouble()) {
      slot.numbers.push_back(add_number(value.toScalar(), false));
    } else if (is_number_list(type) && value.isList()) {
      for (const c10::IValue& element : value.toListRef())
        slot.numbers.push_back(add_number(element.toScalar(), false));
      slot.constant = value;
    } else {
      slot.constant = value;
    }
    slots_.push_back(std::move(slot));
  }
  // Lists are rebuilt from their elements; what is kept here is only which kind of list it was.
  for (Slot& slot : slots_) {
    if (slot.constant.isTensorList()) slot.constant = c10::List<at::Tensor>();
    if (slot.constant.isOptionalTensorList())
      slot.constant = c10::List<std::optional<at::Tensor>>();
  }
}

void Call::take(Slot& slot, const at::Tensor& tensor, bool is_reciprocal) {
  if (!tensor.defined()) {
    slot.views.emplace_back();
    slot.numbers.emplace_back();
    slot.host.emplace_back();
    return;
  }
  TORCH_CHECK(tensor.layout() == at::kStrided, "simulated CUDA: `", schema_.name(),
              "` is given a tensor of layout ", tensor.layout(), ", which is not simulated");
  const bool is_index = tensor.is_cpu() && takes_host_indices(schema_.name()) &&
                        at::isIntegralType(tensor.scalar_type(), true);
  if (tensor.is_cpu() && !is_index) {
    TORCH_CHECK(tensor.dim() == 0,
                "Expected all tensors to be on the same device, but found at least two devices, "
                "cuda:0 and cpu! (`",
                schema_.name(), "`)");
    slot.views.emplace_back();
    slot.host.push_back(copy_without_python(tensor));
    slot.host.back().unsafeGetTensorImpl()->set_wrapped_number(
        tensor.unsafeGetTensorImpl()->is_wrapped_number());
    if (tensor.is_complex())
      slot.numbers.emplace_back();
    else
      slot.numbers.push_back(add_number(tensor.item(), is_reciprocal));
    return;
  }
  TORCH_CHECK(tensor.is_cuda() || is_index, "simulated CUDA: `", schema_.name(),
              "` is given a tensor on ", tensor.device());
  slot.views.push_back(add_output(is_index ? tensor.to(at::kCUDA) : tensor));
  slot.numbers.emplace_back();
  slot.host.emplace_back();
}

View Call::add_output(const at::Tensor& tensor) {
  pointers_.push_back(tensor.data_ptr());
  elements_ = std::max(elements_, tensor.numel());
  return {pointers_.size() - 1, tensor.sizes().vec(), tensor.strides().vec(),
          tensor.scalar_type(), tensor.is_conj(),     tensor.is_neg()};
}

void Call::add_philox(std::span<const std::byte> state) {
  philox_.assign(state.begin(), state.end());
}

Call::Number Call::add_number(const at::Scalar& value, bool is_reciprocal) {
  Number number;
  number.original = is_reciprocal ? at::Scalar(1.0 / value.toDouble()) : value;
  const auto compute = c10::toRealValueType(compute_);
  if (rule_ == NumberRule::kDouble || compute == at::kDouble)
    number.encoding = Encoding::kDouble;
  else if (at::isFloatingType(compute))
    number.encoding = Encoding::kFloat;
  else
    number.encoding = value.isFloatingPoint() ? Encoding::kDouble : Encoding::kLong;
  const std::size_t size = number.encoding == Encoding::kFloat ? 4 : 8;
  number.offset = (numbers_.size() + size - 1) / size * size;
  numbers_.resize(number.offset + size);
  std::byte* const at = numbers_.data() + number.offset;
  if (number.encoding == Encoding::kFloat) {
    // The reciprocal is rounded as ATen's division does it: once to float, then 1 / it in float.
    const float rounded = is_reciprocal ? 1.0F / value.to<float>() : value.to<float>();
    std::memcpy(at, &rounded, size);
  } else if (number.encoding == Encoding::kDouble) {
    const double exact = number.original.toDouble();
    std::memcpy(at, &exact, size);
  } else {
    const std::int64_t exact = value.toLong();
    std::memcpy(at, &exact, size);
  }
  is_reciprocal_ |= is_reciprocal;
  return number;
}

Parameters Call::parameters() const {
  Parameters bytes(pointers_offset() + pointers_.size() * sizeof(void*) + philox_.size());
  std::memcpy(bytes.data(), numbers_.data(), numbers_.size());
  std::byte* const pointers = bytes.data() + pointers_offset();
  std::memcpy(pointers, pointers_.data(), pointers_.size() * sizeof(void*));
  std::memcpy(pointers + pointers_.size() * sizeof(void*), philox_.data(), philox_.size());
  return bytes;
}

std::vector<std::size_t> Call::parameter_sizes() const {
  std::vector<std::size_t> sizes;
  for (const std::size_t size : {numbers_.size(), pointers_.size() * sizeof(void*), philox_.size()})
    if (size != 0) sizes.push_back(size);
  return sizes;
}

void* Call::pointer(std::span<const std::byte> parameters, const View& view) const {
  void* address = nullptr;
  std::memcpy(&address, parameters.data() + pointers_offset() + view.pointer * sizeof(void*),
              sizeof(void*));
  return address;
}

std::span<const std::byte> Call::philox(std::span<const std::byte> parameters) const {
  return parameters.subspan(pointers_offset() + pointers_.size() * sizeof(void*), philox_.size());
}

at::Scalar Call::number(std::span<const std::byte> parameters, const Number& number) const {
  const std::byte* const at = parameters.data() + number.offset;
  if (number.encoding == Encoding::kLong) {
    std::int64_t value = 0;
    std::memcpy(&value, at, sizeof(value));
    return number.original.isBoolean() ? at::Scalar(value != 0) : at::Scalar(value);
  }
  double value = 0;
  float narrow = 0;
  if (number.encoding == Encoding::kFloat)
    std::memcpy(&narrow, at, sizeof(narrow)), value = narrow;
  else
    std::memcpy(&value, at, sizeof(value));
  if (number.original.isFloatingPoint() || std::trunc(value) != value) return value;
  if (number.original.isBoolean()) return at::Scalar(value != 0);
  return static_cast<std::int64_t>(value);
}

at::Tensor Call::tensor(std::span<const std::byte> parameters, const Slot& slot, std::size_t index,
                        const MakeTensor& make) const {
  if (slot.views[index]) return make(*slot.views[index]);
  const at::Tensor& host = slot.host[index];
  if (!slot.numbers[index]) return host;
  const at::Scalar value = number(parameters, *slot.numbers[index]);
  const bool is_same_kind = value.isFloatingPoint() == at::isFloatingType(host.scalar_type());
  at::Tensor made = at::scalar_tensor(
      value, is_same_kind || !value.isFloatingPoint() ? host.scalar_type() : at::kDouble);
  made.unsafeGetTensorImpl()->set_wrapped_number(!is_same_kind ||
                                                 host.unsafeGetTensorImpl()->is_wrapped_number());
  return made;
}

torch::jit::Stack Call::arguments(std::span<const std::byte> parameters, const MakeTensor& make,
                                  const std::optional<at::Generator>& generator) const {
  torch::jit::Stack stack;
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    const Slot& slot = slots_[i];
    const c10::TypePtr type = without_optional(schema_.arguments()[i].type());
    if (slot.constant.isTensorList()) {
      c10::List<at::Tensor> list;
      for (std::size_t j = 0; j < slot.views.size(); ++j)
        list.push_back(tensor(parameters, slot, j, make));
      stack.emplace_back(std::move(list));
    } else if (slot.constant.isOptionalTensorList()) {
      c10::List<std::optional<at::Tensor>> list;
      for (std::size_t j = 0; j < slot.views.size(); ++j) {
        const at::Tensor element = tensor(parameters, slot, j, make);
        list.push_back(element.defined() ? std::optional(element) : std::nullopt);
      }
      stack.emplace_back(std::move(list));
    } else if (!slot.views.empty()) {
      stack.emplace_back(tensor(parameters, slot, 0, make));
    } else if (slot.constant.isList() && !slot.numbers.empty()) {
      c10::impl::GenericList list(c10::NumberType::get());
      for (const auto& element : slot.numbers) list.push_back(number(parameters, *element));
      stack.emplace_back(std::move(list));
    } else if (!slot.numbers.empty()) {
      const at::Scalar value = number(parameters, *slot.numbers[0]);
      if (type->kind() == c10::TypeKind::FloatType)
        stack.emplace_back(value.toDouble());
      else
        stack.emplace_back(value);
    } else if (type->kind() == c10::TypeKind::GeneratorType) {
      stack.emplace_back(generator ? c10::IValue(*generator) : c10::IValue());
    } else if (slot.constant.isDevice()) {
      stack.emplace_back(at::Device(at::kCPU));
    } else {
      stack.push_back(slot.constant);
    }
  }
  return stack;
}

torch::jit::Stack Call::arguments(std::span<const std::byte> parameters,
                                  const std::optional<at::Generator>& generator) const {
  return arguments(
      parameters, [&](const View& view) { return view.over(pointer(parameters, view)); },
      generator);
}

}  // namespace steptape::tests::simulated
