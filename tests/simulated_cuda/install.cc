#include <ATen/Context.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/_scaled_dot_product_attention_math.h>
#include <c10/util/Exception.h>
#include <torch/library.h>

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/simulated_cuda/copy.h"
#include "tests/simulated_cuda/cpu_counterparts.h"
#include "tests/simulated_cuda/launches.h"
#include "tests/simulated_cuda/operator.h"

namespace steptape::tests::simulated {
namespace {

using namespace std::string_view_literals;

/// Kernels that stay LibTorch's own, by the start of their names: they launch nothing, or call
/// other operators.
constexpr std::array kKept = {
    "aten::empty"sv,
    "aten::_efficientzerotensor"sv,
    "aten::as_strided"sv,
    "aten::view"sv,
    "aten::_reshape_alias"sv,
    "aten::unfold"sv,
    "aten::resize_"sv,
    "aten::set_"sv,
    "aten::is_set_to"sv,
    "aten::record_stream"sv,
    "aten::_local_scalar_dense"sv,  // a cudaMemcpyAsync and a wait
    "aten::_to_sparse"sv,
    "aten::_sparse"sv,
    "aten::_nested"sv,
    "aten::_pin_memory"sv,
    "aten::is_pinned"sv,
    "aten::_use_cudnn_ctc_loss"sv,
    "aten::_use_miopen_ctc_loss"sv,
};
/// Likewise, where launches are kept.
constexpr std::array kLaunched = {"aten::_foreach_"sv, "aten::_fused_adam"sv, "aten::_fused_sgd"sv,
                                  "aten::_fused_adagrad"sv};
/// Of these `unfold_backward`, `view_copy` and the like are none.
constexpr std::array kNotKept = {"_backward"sv, "_copy"sv, "_sparse_semi"sv, "_scatter"sv};

/// Operators without a kernel at the key CUDA that choose a library by the device: chosen here
/// before they do, because none of the libraries runs.
constexpr std::array kAdded = {
    "aten::convolution"sv,
    "aten::convolution_overrideable"sv,
    "aten::convolution_backward"sv,
    "aten::convolution_backward_overrideable"sv,
};

/// Numbers of these are doubles in the kernels too (FusedAdamMathFunctor takes `const double&`), or
/// decide the shape.
constexpr std::array kDoubles = {
    "aten::_fused_adam"sv, "aten::_fused_sgd"sv, "aten::_fused_adagrad"sv, "aten::arange"sv,
    "aten::range"sv,       "aten::linspace"sv,   "aten::logspace"sv,
};
constexpr std::array kDivisions = {"aten::div.Tensor"sv, "aten::div_.Tensor"sv, "aten::div.out"sv};

template <class Names>
bool starts_one_of(const Names& names, std::string_view name) {
  for (const std::string_view start : names)
    if (name.substr(0, start.size()) == start) return true;
  return false;
}

template <class Names>
bool is_one_of(const Names& names, std::string_view name) {
  for (const std::string_view one : names)
    if (name == one) return true;
  return false;
}

bool is_kept(std::string_view name) {
  if (keeps_launches() && starts_one_of(kLaunched, name)) return true;
  for (const std::string_view part : kNotKept)
    if (name.find(part) != std::string_view::npos) return false;
  return starts_one_of(kKept, name);
}

NumberRule rule_of(std::string_view name) {
  if (is_one_of(kDivisions, name)) return NumberRule::kReciprocal;
  return starts_one_of(kDoubles, name) ? NumberRule::kDouble : NumberRule::kComputeType;
}

/// For an operator that only a device can run.
struct Unsupported : c10::OperatorKernel {
  void operator()(const c10::OperatorHandle& handle, c10::DispatchKeySet, torch::jit::Stack*) {
    TORCH_CHECK(false, "simulated CUDA: `", toString(handle.operator_name()),
                "` is not simulated: it has no CPU kernel to compute with");
  }
};

/// Attention on a CUDA device is flash, memory-efficient or cuDNN's, which exist as compiled
/// kernels alone. Here it is the mathematical one, which LibTorch has too, in operators that are
/// simulated.
at::Tensor attention_by_math(const at::Tensor& query, const at::Tensor& key,
                             const at::Tensor& value, const std::optional<at::Tensor>& mask,
                             double dropout, bool is_causal, std::optional<double> scale,
                             bool has_grouped_queries) {
  return std::get<0>(at::_scaled_dot_product_attention_math(
      query, key, value, mask, dropout, is_causal, std::nullopt, scale, has_grouped_queries));
}

c10::KernelFunction kernel_for(const c10::OperatorHandle& handle, const std::string& name) {
  using c10::KernelFunction;
  if (name == "aten::copy_")
    return KernelFunction::makeFromBoxedFunctor(std::make_unique<Copy>(handle));
  if (!handle.hasComputedKernelForDispatchKey(c10::DispatchKey::CPU))
    return KernelFunction::makeFromBoxedFunctor(std::make_unique<Unsupported>());
  return KernelFunction::makeFromBoxedFunctor(std::make_unique<Operator>(handle, rule_of(name)));
}

bool is_replaced(const c10::OperatorHandle& handle, const std::string& name) {
  if (name == "aten::copy_" || is_one_of(kAdded, name)) return true;
  return name.rfind("aten::", 0) == 0 && !is_kept(name) &&
         handle.hasKernelForDispatchKey(c10::DispatchKey::CUDA);
}

/// Runs when the library is loaded, after LibTorch has registered its operators: this library
/// depends on LibTorch's.
struct Installation {
  Installation() {
    struct Silent : c10::WarningHandler {
      void process(const c10::Warning&) override {}  // that kernels are registered anew
    } silent;
    const c10::WarningUtils::WarningHandlerGuard guard(&silent);
    register_cpu_counterparts();
    auto& dispatcher = c10::Dispatcher::singleton();
    for (const auto& operator_name : dispatcher.getAllOpNames()) {
      const auto handle = dispatcher.findSchema(operator_name);
      const std::string name = toString(operator_name);
      if (!handle || !is_replaced(*handle, name)) continue;
      registrations.push_back(dispatcher.registerImpl(operator_name, c10::DispatchKey::CUDA,
                                                      kernel_for(*handle, name), std::nullopt,
                                                      nullptr, "simulated CUDA"));
    }
    // Above the backend's key too, so that autograd sees the operators that it consists of.
    for (const auto key : {c10::DispatchKey::CUDA, c10::DispatchKey::AutogradCUDA}) {
      auto& library = *new torch::Library(torch::Library::IMPL, "aten", key, __FILE__, __LINE__);
      library.impl("scaled_dot_product_attention", &attention_by_math);
    }
    // Convolutions, normalisations and recurrent layers then take ATen's own path.
    at::globalContext().setUserEnabledCuDNN(false);
  }

  std::vector<c10::RegistrationHandleRAII> registrations;
};
[[maybe_unused]] const auto& installation = *new Installation;

}  // namespace
}  // namespace steptape::tests::simulated
