#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type.h>

#include <functional>

#include "trace/value.h"

namespace steptape::live {

/// Calls `visit(at::Tensor)` for a tensor, or each of a list of tensors or of such lists, undefined
/// ones included.
template <typename Visit>
void for_each_tensor(const c10::IValue& value, Visit&& visit) {
  if (value.isTensor()) {
    visit(value.toTensor());
  } else if (value.isTensorList()) {
    for (const at::Tensor& tensor : value.toTensorVector()) visit(tensor);
  } else if (value.isList() && !value.toListRef().empty() && value.toListRef()[0].isTensorList()) {
    for (const c10::IValue& list : value.toListRef()) for_each_tensor(list, visit);
  }
}

/// `value` in trace's words; `tensor_id` names its tensors (undefined ones included),
/// `generator_path` its generators.
trace::Value value_of(const c10::IValue& value,
                      const std::function<trace::TensorId(const at::Tensor&)>& tensor_id,
                      const std::function<std::string(const at::Generator&)>& generator_path);

/// The boxed argument of declared type `type` that `value` stands for. Throws Error (data_loss)
/// when the value does not fit the type, (unsupported) for an Opaque.
c10::IValue ivalue_of(const trace::Value& value, const c10::Type& type,
                      const std::function<at::Tensor(trace::TensorId)>& tensor,
                      const std::function<at::Generator(const std::string&)>& generator);

/// One argument of a step: a tensor, or a host value that must stay as it is.
struct Argument {
  at::Tensor tensor;  ///< may be undefined
  trace::Value fact;  ///< stands when `is_tensor` is false
  bool is_tensor = true;
};

}  // namespace steptape::live
