#include "replayer/runtime/cpu/kernels/products/matrices_code.h"

namespace steptape::replayer::cpu::matrices {
namespace {

struct Avx512 {
  using Vector = float __attribute__((vector_size(64)));
  using Bits = std::int32_t __attribute__((vector_size(64)));
};

}  // namespace

constinit const Code kAvx512 = code_for<Avx512>();

}  // namespace steptape::replayer::cpu::matrices
