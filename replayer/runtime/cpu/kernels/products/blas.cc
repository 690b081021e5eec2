#include "replayer/runtime/cpu/kernels/products/blas.h"

#include <dlfcn.h>

#include <memory>

namespace steptape::replayer::cpu {
namespace {

struct Close {
  void operator()(void* library) const { dlclose(library); }
};

/// What both LibTorch and the process at large mean by the name.
template <typename Function>
Function* routine(void* libtorch, const char* name) {
  void* const found = dlsym(libtorch, name);
  return found == dlsym(RTLD_DEFAULT, name) || dlsym(RTLD_DEFAULT, name) == nullptr
             ? reinterpret_cast<Function*>(found)
             : nullptr;
}

}  // namespace

const Blas& blas() {
  static const Blas found = [] {
    const std::unique_ptr<void, Close> libtorch(dlopen("libtorch_cpu.so", RTLD_LAZY | RTLD_NOLOAD));
    if (!libtorch) return Blas{};
    return Blas{
        .sgemm = routine<Blas::Sgemm>(libtorch.get(), "sgemm_"),
        .set_threads = routine<Blas::SetThreads>(libtorch.get(), "MKL_Set_Num_Threads_Local"),
        .square_root = routine<Blas::Unary>(libtorch.get(), "vmsSqrt"),
        .tanh = routine<Blas::Unary>(libtorch.get(), "vmsTanh")};
  }();
  return found;
}

}  // namespace steptape::replayer::cpu
