#include "live/ambient.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/PythonTorchFunctionTLS.h>
#include <ATen/SavedTensorHooks.h>
#include <ATen/TracerMode.h>
#include <ATen/Version.h>
#include <ATen/autocast_mode.h>
#include <c10/core/AutogradState.h>
#include <c10/core/DefaultDtype.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/ScalarTypeToTypeMeta.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>
#include <torch/csrc/autograd/anomaly_mode.h>
#include <torch/version.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <string>
#include <string_view>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace steptape::live {
namespace {

/// LibTorch sets flush-to-zero and denormals-are-zero together, and has no getter.
bool flushes_denormals() {
#if defined(__x86_64__)
  return (_mm_getcsr() & 0x8040) != 0;
#elif defined(__aarch64__)
  std::uint64_t fpcr = 0;
  asm volatile("mrs %0, fpcr" : "=r"(fpcr));
  return (fpcr & (std::uint64_t{1} << 24)) != 0;
#else
  return false;
#endif
}

bool functorch_is_active() {
  return c10::impl::tls_is_dispatch_key_included(c10::DispatchKey::FuncTorchDynamicLayerFrontMode);
}

std::atomic<FunctionModes (*)()> the_reader{nullptr};

FunctionModes function_modes() {
  if (!at::impl::torch_function_mode_enabled()) return {};
  const auto read = the_reader.load();
  return read != nullptr ? read() : FunctionModes{.others = true};
}

/// One that does more than to set the default device.
bool function_mode_is_active() { return function_modes().others; }

/// Whether there are default hooks of saved tensors, or 2 where the step may not set any.
std::int32_t saved_tensor_hooks() {
  const auto& state = at::SavedTensorDefaultHooks::get_tls_state();
  return state.disabled_error_message ? 2 : state.stack.empty() ? 0 : 1;
}

/// torch.jit.trace sees no op of a replay.
bool ops_are_watched() {
  return c10::impl::dispatch_mode_enabled() || at::tracer::impl::is_dispatch_enabled();
}

/// Where it is not, nothing is recorded for a backward pass, whatever the grad mode.
bool autograd_is_dispatched() {
  return !c10::impl::tls_is_dispatch_key_excluded(c10::DispatchKey::AutogradFunctionality);
}

bool replays_views() { return c10::AutogradState::get_tls_state().get_view_replay_enabled(); }

/// LibTorch throws here once the switches by backend, which this one cannot express, were used.
std::int32_t matmul_precision(at::Context& context) {
  constexpr std::int32_t kMixed = 0xff;
  try {
    return static_cast<std::int32_t>(context.float32MatmulPrecision());
  } catch (const c10::Error&) {
    return kMixed;
  }
}

/// What holds of convolutions, recurrences and products, by whichever switch; a decimal digit each.
/// One that nobody has set is as precise as IEEE's.
template <at::Float32Backend backend>
std::int32_t precision(at::Context& context) {
  std::int32_t digits = 0;
  for (const auto op : {at::Float32Op::CONV, at::Float32Op::RNN, at::Float32Op::MATMUL}) {
    const at::Float32Precision set = context.float32Precision(backend, op);
    const bool is_set = set != at::Float32Precision::NONE;
    digits = digits * 10 + static_cast<std::int32_t>(is_set ? set : at::Float32Precision::IEEE);
  }
  return digits;
}

std::int32_t order_of_sdp(at::Context& context) {
  std::int32_t digits = 0;
  for (const at::SDPBackend backend : context.sDPPriorityOrder()) {
    digits = digits * 10 + static_cast<std::int32_t>(backend);
  }
  return digits;
}

template <auto getter>
std::int32_t of_context(at::Context& context) {
  return static_cast<std::int32_t>((context.*getter)());
}

template <auto function, auto... arguments>
std::int32_t of_thread(at::Context& /*context*/) {
  return static_cast<std::int32_t>(function(arguments...));
}

std::string text_of_flag(std::int32_t on) { return on != 0 ? "on" : "off"; }
std::string text_of_number(std::int32_t number) { return std::to_string(number); }
std::string text_of_hooks(std::int32_t state) {
  return state == 2 ? "not allowed" : text_of_flag(state);
}

std::int32_t anomaly_mode() {
  using torch::autograd::AnomalyMode;
  return AnomalyMode::is_enabled() ? (AnomalyMode::should_check_nan() ? 1 : 2) : 0;
}
std::string text_of_anomaly_mode(std::int32_t state) {
  return state == 2 ? "without a look for NaN" : text_of_flag(state);
}
std::string text_of_dtype(std::int32_t type) {
  return c10::toString(static_cast<at::ScalarType>(type));
}

struct Switch {
  std::string_view name;
  std::int32_t (*now)(at::Context& context);
  std::string (*text)(std::int32_t) = &text_of_flag;
};

namespace autocast = at::autocast;
using at::Context;

// Traces that were kept have these names.
constexpr auto kSwitches = std::to_array<Switch>({
    {"grad_mode", of_thread<c10::GradMode::is_enabled>},
    {"inference_mode", of_thread<c10::InferenceMode::is_enabled>},
    {"autocast_cpu", of_thread<autocast::is_autocast_enabled, at::kCPU>},
    {"autocast_cuda", of_thread<autocast::is_autocast_enabled, at::kCUDA>},
    // where autocast is off, too: the step may turn it on
    {"autocast_dtype", of_thread<autocast::get_autocast_dtype, at::kCPU>, text_of_dtype},
    {"autocast_cuda_dtype", of_thread<autocast::get_autocast_dtype, at::kCUDA>, text_of_dtype},
    {"autocast_cache", of_thread<autocast::is_autocast_cache_enabled>},
    {"deterministic", of_context<&Context::deterministicAlgorithms>},
    {"deterministic_warn_only", of_context<&Context::deterministicAlgorithmsWarnOnly>},
    {"fill_uninitialized", of_context<&Context::deterministicFillUninitializedMemory>},
    {"mkldnn", of_context<&Context::userEnabledMkldnn>},
    {"mkldnn_deterministic", of_context<&Context::deterministicMkldnn>},
    {"nnpack", of_context<&Context::userEnabledNNPACK>},
    {"quantized_engine", of_context<&Context::qEngine>, text_of_number},
    {"cudnn", of_context<&Context::userEnabledCuDNN>},
    {"cudnn_benchmark", of_context<&Context::benchmarkCuDNN>},
    {"cudnn_benchmark_limit", of_context<&Context::benchmarkLimitCuDNN>, text_of_number},
    {"cudnn_deterministic", of_context<&Context::deterministicCuDNN>},
    {"linalg_backend", of_context<&Context::linalgPreferredBackend>, text_of_number},
    {"blas_backend", of_context<&Context::blasPreferredBackend>, text_of_number},
    {"sdp_flash", of_context<&Context::userEnabledFlashSDP>},
    {"sdp_fa3", of_context<&Context::userEnabledFA3SDP>},
    {"sdp_mem_efficient", of_context<&Context::userEnabledMemEfficientSDP>},
    {"sdp_math", of_context<&Context::userEnabledMathSDP>},
    {"sdp_math_half", of_context<&Context::allowFP16BF16ReductionMathSDP>},
    {"sdp_cudnn", of_context<&Context::userEnabledCuDNNSDP>},
    {"sdp_overrideable", of_context<&Context::userEnabledOverrideableSDP>},
    {"sdp_order", order_of_sdp, text_of_number},
    {"matmul_precision", matmul_precision, text_of_number},
    {"precision_cuda", precision<at::Float32Backend::CUDA>, text_of_number},
    {"precision_mkldnn", precision<at::Float32Backend::MKLDNN>, text_of_number},
    {"half_reduction", of_context<&Context::allowFP16ReductionCuBLAS>, text_of_number},
    {"half_reduction_cpu", of_context<&Context::allowFP16ReductionCPU>},
    {"half_accumulation", of_context<&Context::allowFP16AccumulationCuBLAS>},
    {"bfloat16_reduction", of_context<&Context::allowBF16ReductionCuBLAS>, text_of_number},
    {"flush_denormal", of_thread<flushes_denormals>},
    {"anomaly_mode", of_thread<anomaly_mode>, text_of_anomaly_mode},
    {"saved_tensor_hooks", of_thread<saved_tensor_hooks>, text_of_hooks},
    {"view_replay", of_thread<replays_views>},
    {"autograd_dispatch", of_thread<autograd_is_dispatched>},
    {"functorch", of_thread<functorch_is_active>},
    {"dispatch_mode", of_thread<ops_are_watched>},
    {"torch_function_mode", of_thread<function_mode_is_active>},
    {"default_dtype", of_thread<c10::get_default_dtype_as_scalartype>, text_of_dtype},
    {"threads", of_thread<at::get_num_threads>, text_of_number},
});
static_assert(kSwitches.size() == Ambient::kCount);

}  // namespace

void read_function_modes_by(FunctionModes (*read)()) { the_reader = read; }

Ambient Ambient::current() {
  at::Context& context = at::globalContext();
  Ambient ambient{.values = {}, .default_device = function_modes().default_device};
  std::ranges::transform(kSwitches, ambient.values.begin(),
                         [&](const Switch& one) { return one.now(context); });
  return ambient;
}

std::int32_t Ambient::operator[](std::string_view name) const {
  const auto one = std::ranges::find(kSwitches, name, &Switch::name);
  TORCH_INTERNAL_ASSERT(one != kSwitches.end());
  return values[one - kSwitches.begin()];
}

std::vector<trace::Fact> Ambient::facts() const {
  std::vector<trace::Fact> facts;
  for (std::size_t i = 0; i < kCount; ++i)
    facts.push_back({std::string(kSwitches[i].name), kSwitches[i].text(values[i])});
  facts.push_back({"default_device", default_device ? default_device->str() : "none"});
  return facts;
}

namespace {

constexpr const char* architecture() {
#if defined(__x86_64__)
  return "x86_64";
#elif defined(__aarch64__)
  return "aarch64";
#else
  return "other";
#endif
}

/// "a, b" of "a\nb\n": a fact is one line.
std::string one_line(const std::string& text) {
  std::string line;
  for (const char c : text) {
    if (c != '\n') {
      line += c;
    } else if (!line.empty()) {
      line += ", ";
    }
  }
  while (line.ends_with(", ")) line.resize(line.size() - 2);
  return line;
}

}  // namespace

std::vector<trace::Fact> environment() {
  return {{"torch", TORCH_VERSION},
          {"architecture", architecture()},
          {"cpu_capability", at::get_cpu_capability()},
          {"blas", one_line(at::get_mkl_version())},
          {"mkldnn", one_line(at::get_mkldnn_version())},
          {"openmp", one_line(at::get_openmp_version())}};
}

std::vector<trace::Fact> producer() {
  return {{"steptape", STEPTAPE_VERSION}, {"torch", TORCH_VERSION}, {"compiler", __VERSION__}};
}

}  // namespace steptape::live
