#include "replayer/runtime/cpu/kernels/structured.h"

#include <ATen/ops/_log_softmax_backward_data_native.h>
#include <ATen/ops/_log_softmax_native.h>
#include <ATen/ops/_softmax_backward_data_native.h>
#include <ATen/ops/_softmax_native.h>
#include <ATen/ops/add_native.h>
#include <ATen/ops/addcdiv_native.h>
#include <ATen/ops/addcmul_native.h>
#include <ATen/ops/addmm_native.h>
#include <ATen/ops/baddbmm_native.h>
#include <ATen/ops/bmm_native.h>
#include <ATen/ops/clamp_max_native.h>
#include <ATen/ops/clamp_min_native.h>
#include <ATen/ops/cos_native.h>
#include <ATen/ops/div_native.h>
#include <ATen/ops/elu_native.h>
#include <ATen/ops/eq_native.h>
#include <ATen/ops/erf_native.h>
#include <ATen/ops/exp_native.h>
#include <ATen/ops/ge_native.h>
#include <ATen/ops/gelu_backward_native.h>
#include <ATen/ops/gelu_native.h>
#include <ATen/ops/gt_native.h>
#include <ATen/ops/le_native.h>
#include <ATen/ops/leaky_relu_backward_native.h>
#include <ATen/ops/leaky_relu_native.h>
#include <ATen/ops/lerp_native.h>
#include <ATen/ops/log_native.h>
#include <ATen/ops/lt_native.h>
#include <ATen/ops/maximum_native.h>
#include <ATen/ops/mean_native.h>
#include <ATen/ops/minimum_native.h>
#include <ATen/ops/mm_native.h>
#include <ATen/ops/mul_native.h>
#include <ATen/ops/ne_native.h>
#include <ATen/ops/neg_native.h>
#include <ATen/ops/nll_loss_backward_native.h>
#include <ATen/ops/nll_loss_forward_native.h>
#include <ATen/ops/pow_native.h>
#include <ATen/ops/reciprocal_native.h>
#include <ATen/ops/rsqrt_native.h>
#include <ATen/ops/sigmoid_backward_native.h>
#include <ATen/ops/sigmoid_native.h>
#include <ATen/ops/silu_backward_native.h>
#include <ATen/ops/silu_native.h>
#include <ATen/ops/sin_native.h>
#include <ATen/ops/softplus_backward_native.h>
#include <ATen/ops/softplus_native.h>
#include <ATen/ops/sqrt_native.h>
#include <ATen/ops/sub_native.h>
#include <ATen/ops/sum_native.h>
#include <ATen/ops/tanh_backward_native.h>
#include <ATen/ops/tanh_native.h>
#include <ATen/ops/threshold_backward_native.h>

#include <initializer_list>

namespace steptape::replayer::cpu {
namespace {

template <typename Op, std::size_t kResults = 1>
void add(KernelTable& table, std::initializer_list<std::string_view> names) {
  for (const std::string_view name : names) table.add(name, &Structured<Op, kResults>::make);
}

void add_arithmetic(KernelTable& table) {
  using namespace at::native;
  add<structured_ufunc_add_CPU>(table, {"aten::add.out", "aten::add_.Tensor"});
  add<structured_sub_out>(table, {"aten::sub.out", "aten::sub_.Tensor"});
  add<structured_mul_out>(table, {"aten::mul.out", "aten::mul_.Tensor"});
  add<structured_div_out>(table, {"aten::div.out", "aten::div_.Tensor"});
  add<structured_addcmul_out>(table, {"aten::addcmul.out", "aten::addcmul_"});
  add<structured_addcdiv_out>(table, {"aten::addcdiv.out", "aten::addcdiv_"});
  add<structured_lerp_Scalar>(table, {"aten::lerp.Scalar_out", "aten::lerp_.Scalar"});
  add<structured_maximum_out>(table, {"aten::maximum.out"});
  add<structured_minimum_out>(table, {"aten::minimum.out"});
  add<structured_clamp_min_out>(table, {"aten::clamp_min.out", "aten::clamp_min_"});
  add<structured_clamp_max_out>(table, {"aten::clamp_max.out", "aten::clamp_max_"});
  add<structured_pow_Tensor_Scalar_out>(table,
                                        {"aten::pow.Tensor_Scalar_out", "aten::pow_.Scalar"});
}

void add_comparisons(KernelTable& table) {
  using namespace at::native;
  add<structured_eq_Scalar_out>(table, {"aten::eq.Scalar_out"});
  add<structured_ne_Scalar_out>(table, {"aten::ne.Scalar_out"});
  add<structured_lt_Scalar_out>(table, {"aten::lt.Scalar_out"});
  add<structured_le_Scalar_out>(table, {"aten::le.Scalar_out"});
  add<structured_gt_Scalar_out>(table, {"aten::gt.Scalar_out"});
  add<structured_ge_Scalar_out>(table, {"aten::ge.Scalar_out"});
  add<structured_eq_Tensor_out>(table, {"aten::eq.Tensor_out"});
  add<structured_ne_Tensor_out>(table, {"aten::ne.Tensor_out"});
  add<structured_lt_Tensor_out>(table, {"aten::lt.Tensor_out"});
  add<structured_le_Tensor_out>(table, {"aten::le.Tensor_out"});
  add<structured_gt_Tensor_out>(table, {"aten::gt.Tensor_out"});
  add<structured_ge_Tensor_out>(table, {"aten::ge.Tensor_out"});
}

void add_functions(KernelTable& table) {
  using namespace at::native;
  add<structured_neg_out>(table, {"aten::neg.out", "aten::neg_"});
  add<structured_reciprocal_out>(table, {"aten::reciprocal.out", "aten::reciprocal_"});
  add<structured_sqrt_out>(table, {"aten::sqrt.out", "aten::sqrt_"});
  add<structured_rsqrt_out>(table, {"aten::rsqrt.out", "aten::rsqrt_"});
  add<structured_exp_out>(table, {"aten::exp.out", "aten::exp_"});
  add<structured_log_out>(table, {"aten::log.out", "aten::log_"});
  add<structured_sin_out>(table, {"aten::sin.out", "aten::sin_"});
  add<structured_cos_out>(table, {"aten::cos.out", "aten::cos_"});
  add<structured_erf_out>(table, {"aten::erf.out", "aten::erf_"});
  add<structured_sigmoid_out>(table, {"aten::sigmoid.out", "aten::sigmoid_"});
  add<structured_tanh_out>(table, {"aten::tanh.out", "aten::tanh_"});
}

void add_activations(KernelTable& table) {
  using namespace at::native;
  add<structured_sigmoid_backward_out>(table, {"aten::sigmoid_backward.grad_input"});
  add<structured_tanh_backward_out>(table, {"aten::tanh_backward.grad_input"});
  add<structured_threshold_backward_out>(table, {"aten::threshold_backward.grad_input"});
  add<structured_gelu_out_cpu>(table, {"aten::gelu.out", "aten::gelu_"});
  add<structured_gelu_backward_out_cpu>(table, {"aten::gelu_backward.grad_input"});
  add<structured_silu_out>(table, {"aten::silu.out", "aten::silu_"});
  add<structured_silu_backward_out>(table, {"aten::silu_backward.grad_input"});
  add<structured_elu_out>(table, {"aten::elu.out", "aten::elu_"});
  add<structured_leaky_relu_out>(table, {"aten::leaky_relu.out", "aten::leaky_relu_"});
  add<structured_leaky_relu_backward_out>(table, {"aten::leaky_relu_backward.grad_input"});
  add<structured_softplus_out>(table, {"aten::softplus.out"});
  add<structured_softplus_backward_out>(table, {"aten::softplus_backward.grad_input"});
}

void add_reductions(KernelTable& table) {
  using namespace at::native;
  add<structured_sum_out>(table, {"aten::sum.IntList_out"});
  add<structured_mean_out>(table, {"aten::mean.out"});
  add<structured_softmax_cpu_out>(table, {"aten::_softmax.out"});
  add<structured_softmax_backward_cpu_out>(table, {"aten::_softmax_backward_data.out"});
  add<structured_log_softmax_cpu_out>(table, {"aten::_log_softmax.out"});
  add<structured_log_softmax_backward_cpu_out>(table, {"aten::_log_softmax_backward_data.out"});
  add<structured_nll_loss_forward_out_cpu, 2>(table, {"aten::nll_loss_forward.output"});
  add<structured_nll_loss_backward_out_cpu>(table, {"aten::nll_loss_backward.grad_input"});
}

void add_products(KernelTable& table) {
  using namespace at::native;
  add<structured_mm_out_cpu>(table, {"aten::mm.out"});
  add<structured_addmm_out_cpu>(table, {"aten::addmm.out", "aten::addmm_"});
  add<structured_bmm_out_cpu>(table, {"aten::bmm.out"});
  add<structured_baddbmm_out_cpu>(table, {"aten::baddbmm.out", "aten::baddbmm_"});
}

}  // namespace

void add_structured_kernels(KernelTable& table) {
  add_arithmetic(table);
  add_comparisons(table);
  add_functions(table);
  add_activations(table);
  add_reductions(table);
  add_products(table);
}

}  // namespace steptape::replayer::cpu
