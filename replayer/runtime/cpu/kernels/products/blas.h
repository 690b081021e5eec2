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
  /// How many threads MKL takes for the calling thread's calls, 0: as many as are set for all;
  /// gives what it was.
  using SetThreads = int(int count);

  SetThreads* set_threads = nullptr;
  Unary* square_root = nullptr;
  Unary* tanh = nullptr;

  /// High accuracy, denormals kept, errors ignored: as ATen calls it (ATen/cpu/vml.h).
  static constexpr long long kMode = 0x2 | 0x00140000 | 0x100;
};

const Blas& blas();

/// While it lives the calling thread's calls of MKL are done by it alone, where MKL can be told so.
class OneThread {
 public:
  OneThread() : before_(blas().set_threads == nullptr ? 0 : blas().set_threads(1)) {}
  ~OneThread() {
    if (blas().set_threads != nullptr) blas().set_threads(before_);
  }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int before_;
};

}  // namespace steptape::replayer::cpu
