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

}  // namespace steptape::replayer::cpu
