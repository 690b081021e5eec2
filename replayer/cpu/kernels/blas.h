#pragma once

namespace steptape::replayer::cpu {

/// The routines of the BLAS that LibTorch calls, found in the process; null where it has none by
/// these names, or where the process holds another BLAS besides, which might be the one that
/// LibTorch calls.
struct Blas {
  using Sgemm = void(const char* transposed_a, const char* transposed_b, const int* m, const int* n,
                     const int* k, const float* alpha, const float* a, const int* lda,
                     const float* b, const int* ldb, const float* beta, float* c, const int* ldc);
  /// MKL's vector mathematics. `mode` is a VML_ mask.
  using Unary = void(int count, const float* a, float* result, long long mode);

  Sgemm* sgemm = nullptr;
  Unary* square_root = nullptr;
  Unary* tanh = nullptr;

  /// High accuracy, denormals kept, errors ignored: as ATen calls it (ATen/cpu/vml.h).
  static constexpr long long kMode = 0x2 | 0x00140000 | 0x100;
};

const Blas& blas();

}  // namespace steptape::replayer::cpu
