#pragma once

#include <c10/core/TensorImpl.h>
#include <torch/csrc/autograd/variable.h>

/// What autograd keeps of a tensor, read in place: for code that looks at thousands of tensors a
/// step.
namespace steptape::live {

/// Null: autograd knows nothing of the tensor. All metadata of dense tensors is of this class, as
/// torch::autograd::impl::get_autograd_meta has it.
inline const torch::autograd::AutogradMeta* autograd_meta_of(const c10::TensorImpl& tensor) {
  return static_cast<const torch::autograd::AutogradMeta*>(tensor.autograd_meta());
}

inline bool requires_grad(const torch::autograd::AutogradMeta* meta) {
  return meta != nullptr && (meta->requires_grad_ || meta->grad_fn_ != nullptr);
}

/// Null: None.
inline const c10::TensorImpl* gradient_of(const torch::autograd::AutogradMeta* meta) {
  return meta != nullptr && meta->grad_.defined() ? meta->grad_.unsafeGetTensorImpl() : nullptr;
}

inline bool has_hooks(const torch::autograd::AutogradMeta* meta) {
  return meta != nullptr && (meta->cpp_hooks_list_ != nullptr || !meta->hooks_.empty() ||
                             meta->post_acc_grad_hooks_ != nullptr);
}

}  // namespace steptape::live
