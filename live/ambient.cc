#include "live/ambient.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/PythonTorchFunctionTLS.h>
#include <ATen/SavedTensorHooks.h>
#include <ATen/TracerMode.h>
#include <ATen/autocast_mode.h>
#include <c10/core/DefaultDtype.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/ScalarTypeToTypeMeta.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>
#include <torch/csrc/autograd/anomaly_mode.h>

#include <atomic>
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

/// Where autocast is off, too: the step may turn it on.
std::uint8_t autocast_dtype(bool cuda) {
  return static_cast<std::uint8_t>(at::autocast::get_autocast_dtype(cuda ? at::kCUDA : at::kCPU));
}

constexpr std::uint8_t kMixedPrecision = 0xff;

/// LibTorch throws here once the switches by backend, which this one cannot express, were used.
std::uint8_t matmul_precision(const at::Context& context) {
  try {
    return static_cast<std::uint8_t>(context.float32MatmulPrecision());
  } catch (const c10::Error&) {
    return kMixedPrecision;
  }
}

std::atomic<FunctionModes (*)()> the_reader{nullptr};

FunctionModes function_modes() {
  if (!at::impl::torch_function_mode_enabled()) return {};
  const auto read = the_reader.load();
  return read != nullptr ? read() : FunctionModes{.others = true};
}

void set_context(Ambient& ambient) {
  const at::Context& context = at::globalContext();
  ambient.deterministic = context.deterministicAlgorithms();
  ambient.deterministic_warn_only = context.deterministicAlgorithmsWarnOnly();
  ambient.fill_uninitialized = context.deterministicFillUninitializedMemory();
  ambient.mkldnn = context.userEnabledMkldnn();
  ambient.mkldnn_deterministic = context.deterministicMkldnn();
  ambient.nnpack = context.userEnabledNNPACK();
  ambient.cudnn = context.userEnabledCuDNN();
  ambient.cudnn_benchmark = context.benchmarkCuDNN();
  ambient.cudnn_deterministic = context.deterministicCuDNN();
  ambient.sdp_flash = context.userEnabledFlashSDP();
  ambient.sdp_mem_efficient = context.userEnabledMemEfficientSDP();
  ambient.sdp_math = context.userEnabledMathSDP();
  ambient.matmul_precision = matmul_precision(context);
}

void set_thread(Ambient& ambient) {
  ambient.grad_mode = c10::GradMode::is_enabled();
  ambient.inference_mode = c10::InferenceMode::is_enabled();
  ambient.autocast_cpu = at::autocast::is_autocast_enabled(at::kCPU);
  ambient.autocast_cuda = at::autocast::is_autocast_enabled(at::kCUDA);
  ambient.autocast_dtype = autocast_dtype(ambient.autocast_cuda);
  ambient.flush_denormal = flushes_denormals();
  ambient.anomaly_mode = torch::autograd::AnomalyMode::is_enabled();
  ambient.saved_tensor_hooks = !at::SavedTensorDefaultHooks::get_tls_state().stack.empty();
  ambient.functorch = functorch_is_active();
  // torch.jit.trace sees no op of a replay
  ambient.dispatch_mode =
      c10::impl::dispatch_mode_enabled() || at::tracer::impl::is_dispatch_enabled();
  const FunctionModes modes = function_modes();
  ambient.torch_function_mode = modes.others;
  ambient.default_device = modes.default_device;
  ambient.default_dtype = static_cast<std::uint8_t>(c10::get_default_dtype_as_scalartype());
  ambient.threads = at::get_num_threads();
}

}  // namespace

void read_function_modes_by(FunctionModes (*read)()) { the_reader = read; }

Ambient Ambient::current() {
  Ambient ambient;
  set_context(ambient);
  set_thread(ambient);
  return ambient;
}

std::vector<trace::Fact> Ambient::facts() const {
  const auto flag = [](const char* name, bool on) { return trace::Fact{name, on ? "on" : "off"}; };
  const auto dtype = [](std::uint8_t type) {
    return std::string(c10::toString(static_cast<at::ScalarType>(type)));
  };
  return {flag("grad_mode", grad_mode),
          flag("inference_mode", inference_mode),
          flag("autocast_cpu", autocast_cpu),
          flag("autocast_cuda", autocast_cuda),
          {"autocast_dtype", dtype(autocast_dtype)},
          flag("deterministic", deterministic),
          flag("deterministic_warn_only", deterministic_warn_only),
          flag("fill_uninitialized", fill_uninitialized),
          flag("mkldnn", mkldnn),
          flag("mkldnn_deterministic", mkldnn_deterministic),
          flag("nnpack", nnpack),
          flag("cudnn", cudnn),
          flag("cudnn_benchmark", cudnn_benchmark),
          flag("cudnn_deterministic", cudnn_deterministic),
          flag("sdp_flash", sdp_flash),
          flag("sdp_mem_efficient", sdp_mem_efficient),
          flag("sdp_math", sdp_math),
          flag("flush_denormal", flush_denormal),
          flag("anomaly_mode", anomaly_mode),
          flag("saved_tensor_hooks", saved_tensor_hooks),
          flag("functorch", functorch),
          flag("dispatch_mode", dispatch_mode),
          flag("torch_function_mode", torch_function_mode),
          {"default_dtype", dtype(default_dtype)},
          {"default_device", default_device ? default_device->str() : "none"},
          {"matmul_precision", std::to_string(matmul_precision)},
          {"threads", std::to_string(threads)}};
}

}  // namespace steptape::live
