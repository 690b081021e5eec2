#pragma once

#include <c10/core/TensorImpl.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/nn/module.h>

#include <memory>
#include <string>

/// Fields of a tensor, read in place: for code that looks at thousands of tensors a step. The
/// accessors of TensorImpl are calls into another library, or ask first whether the tensor is of a
/// kind that has no such fields; a tensor that a plan holds is of none.
namespace steptape::live {

class TensorFields final : c10::TensorImpl {
 public:
  static const c10::impl::SizesAndStrides& sizes_and_strides(const c10::TensorImpl& tensor) {
    return tensor.*&TensorFields::sizes_and_strides_;
  }
  static std::int64_t storage_offset(const c10::TensorImpl& tensor) {
    return tensor.*&TensorFields::storage_offset_;
  }
};

// Explicit instantiation may name private members ([temp.spec.general]); each file has its own.
namespace {

struct OfAutograd {};
const std::unique_ptr<c10::AutogradMetaInterface>& open(OfAutograd, const c10::TensorImpl& tensor);
template <typename Tag, auto kMember>
struct Opened {
  friend const std::unique_ptr<c10::AutogradMetaInterface>& open(Tag,
                                                                 const c10::TensorImpl& tensor) {
    return tensor.*kMember;
  }
};
template struct Opened<OfAutograd, &c10::TensorImpl::autograd_meta_>;

}  // namespace

/// Null: autograd knows nothing of the tensor. All metadata of dense tensors is of this class, as
/// torch::autograd::impl::get_autograd_meta has it.
inline const torch::autograd::AutogradMeta* autograd_meta_of(const c10::TensorImpl& tensor) {
  return static_cast<const torch::autograd::AutogradMeta*>(open(OfAutograd{}, tensor).get());
}

inline bool requires_grad(const torch::autograd::AutogradMeta* meta) {
  if (meta == nullptr) return false;
  // a view does when what it is one of does
  return meta->requires_grad_ || meta->grad_fn_ != nullptr ||
         (meta->is_view_ && meta->requires_grad());
}

/// The dtype that the tensor's gradient is to have (`grad_dtype`, torch 2.10) as a number, -1 where
/// it is the tensor's; smaller ones where any may be.
inline int gradient_type_of(const torch::autograd::AutogradMeta* meta) {
  if (meta == nullptr) return -1;
  const int type = meta->grad_dtype_ ? static_cast<int>(*meta->grad_dtype_) : -1;
  return meta->allow_grad_dtype_mismatch_ ? -2 - type - 1 : type;
}

inline int gradient_type_of(const at::Tensor& tensor) {
  return gradient_type_of(tensor.defined() ? autograd_meta_of(*tensor.unsafeGetTensorImpl())
                                           : nullptr);
}

/// Null: None.
inline const c10::TensorImpl* gradient_of(const torch::autograd::AutogradMeta* meta) {
  return meta != nullptr && meta->grad_.defined() ? meta->grad_.unsafeGetTensorImpl() : nullptr;
}

inline bool has_hooks(const torch::autograd::AutogradMeta* meta) {
  return meta != nullptr && (meta->cpp_hooks_list_ != nullptr || !meta->hooks_.empty() ||
                             meta->post_acc_grad_hooks_ != nullptr);
}

// What is registered with a module, read in place. The accessors of torch::nn::Module copy names
// and handles.

using Tensors = torch::OrderedDict<std::string, at::Tensor>;
using SubModules = torch::OrderedDict<std::string, std::shared_ptr<torch::nn::Module>>;

const Tensors& parameters_of(const torch::nn::Module& module);
const Tensors& buffers_of(const torch::nn::Module& module);
const SubModules& sub_modules_of(const torch::nn::Module& module);

}  // namespace steptape::live
