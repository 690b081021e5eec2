#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

namespace steptape::replayer::cpu {

/// result = a · b, or bias + a · b with the bias of each column, of float32 matrices.
struct MatrixProduct {
  at::Tensor a, b;
  at::Tensor bias;  ///< undefined: none
  at::Tensor result;
};

/// The call of sgemm that ATen makes for a product.
class Sgemm {
 public:
  /// None where ATen would take another way. It chooses operands and leading dimensions as
  /// addmm_impl_cpu_ does (ATen/native/LinearAlgebra.cpp) and cpublas::gemm's normalisation after
  /// it (ATen/native/CPUBlas.cpp). Asked for is a BLAS.
  static std::optional<Sgemm> make(const MatrixProduct& product);

  void run() const;
  /// From now on on the calling thread alone, or not. Asked for is Blas::set_threads.
  void go_alone(bool is_alone = true) { is_alone_ = is_alone; }

 private:
  /// A factor as BLAS wants it, column by column.
  struct Factor {
    at::Tensor tensor;
    char transposed = 'n';
    int leading = 0;  ///< elements from column to column
  };

  static bool is_matrix(const at::Tensor& tensor);
  static bool is_row_for(const at::Tensor& bias, const at::Tensor& result);
  static std::optional<Factor> factor(const at::Tensor& tensor, int rows, int columns,
                                      std::int64_t height, std::int64_t width);
  void normalize();
  void put_bias(float* result) const;

  at::Tensor result_;
  at::Tensor bias_;
  Factor a_;
  Factor b_;
  int m_ = 0;
  int n_ = 0;
  int k_ = 0;
  int leading_ = 0;
  bool is_alone_ = false;
};

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
