#include "tests/simulated_cuda/copy.h"

#include <ATen/cuda/CachingHostAllocator.h>
#include <ATen/ops/empty_like.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>

namespace steptape::tests::simulated {
namespace {

bool is_one_block(const at::Tensor& to, const at::Tensor& from) {
  const bool is_dense = (to.is_contiguous() && from.is_contiguous()) ||
                        (to.is_non_overlapping_and_dense() && to.strides() == from.strides());
  return is_dense && to.sizes() == from.sizes() && to.dtype() == from.dtype() &&
         to.is_conj() == from.is_conj() && to.is_neg() == from.is_neg();
}

void copy_bytes(const at::Tensor& to, const at::Tensor& from) {
  C10_CUDA_CHECK(cudaMemcpyAsync(to.data_ptr(), from.data_ptr(), from.nbytes(), cudaMemcpyDefault,
                                 c10::cuda::getCurrentCUDAStream()));
}

void copy_across(const at::Tensor& to, const at::Tensor& from, bool is_non_blocking) {
  if (!is_one_block(to, from)) {
    const bool is_converted_first = to.is_cuda() || to.dtype() == from.dtype();
    const auto dtype = is_converted_first ? to.scalar_type() : from.scalar_type();
    const at::Tensor staged_to =
        to.is_contiguous() && to.scalar_type() == dtype && !to.is_conj() && !to.is_neg()
            ? to
            : at::empty_like(to, to.options().dtype(dtype), at::MemoryFormat::Contiguous);
    const at::Tensor staged_from =
        from.to(dtype).resolve_conj().resolve_neg().expand_as(to).contiguous();
    copy_across(staged_to, staged_from, is_non_blocking);
    if (!staged_to.is_same(to)) to.copy_(staged_to, is_non_blocking);
    return;
  }
  const auto stream = c10::cuda::getCurrentCUDAStream();
  copy_bytes(to, from);
  if (!is_non_blocking) {
    C10_CUDA_CHECK(cudaStreamSynchronize(stream));
    return;
  }
  const at::Tensor& host = to.is_cuda() ? from : to;
  at::getHostAllocator(at::kCUDA)->record_event(
      host.data_ptr(), host.storage().data_ptr().get_context(), stream.unwrap());
}

}  // namespace

void Copy::operator()(const c10::OperatorHandle& handle, c10::DispatchKeySet keys,
                      torch::jit::Stack* stack) {
  const at::AutoDispatchBelowADInplaceOrView guard;
  const auto& arguments = torch::jit::last(*stack, 3);
  const at::Tensor to = arguments[0].toTensor();
  const at::Tensor from = arguments[1].toTensor();
  const bool is_non_blocking = arguments[2].toBool();
  const at::Tensor expanded = from.expand_as(to);
  if (to.is_cuda() && from.is_cuda() && !is_one_block(to, expanded)) {
    on_device_(handle, keys, stack);
    return;
  }
  torch::jit::drop(*stack, 3);
  stack->emplace_back(to);
  if (to.is_same(from) || to.numel() == 0) return;
  if (to.is_cuda() && from.is_cuda())
    copy_bytes(to, expanded);
  else
    copy_across(to, from, is_non_blocking);
}

}  // namespace steptape::tests::simulated
