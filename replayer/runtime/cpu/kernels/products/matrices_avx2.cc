#include "replayer/runtime/cpu/kernels/products/matrices_code.h"

namespace steptape::replayer::cpu::matrices {
namespace {

struct Avx2 {
  using Vector = float __attribute__((vector_size(32)));
  using Bits = std::int32_t __attribute__((vector_size(32)));
};

}  // namespace

constinit const Code kAvx2 = code_for<Avx2>();

}  // namespace steptape::replayer::cpu::matrices
