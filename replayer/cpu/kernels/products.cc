#include <algorithm>
#include <cstring>
#include <optional>

#include "replayer/cpu/kernels/blas.h"
#include "replayer/cpu/kernels/table.h"

namespace steptape::replayer::cpu {
namespace {

/// A factor as BLAS wants it, column by column.
struct Factor {
  at::Tensor tensor;
  char transposed = 'n';
  int leading = 0;  ///< elements from column to column
};

/// result = a · b, or bias + a · b, of float32 matrices, by the call of sgemm that ATen would make.
class Product final : public Kernel {
 public:
  void run() override {
    auto* const result = static_cast<float*>(result_.mutable_data_ptr());
    if (bias_.defined()) put_bias(result);
    const float one = 1;
    const float beta = bias_.defined() ? 1 : 0;
    blas().sgemm(&a_.transposed, &b_.transposed, &m_, &n_, &k_, &one,
                 static_cast<const float*>(a_.tensor.const_data_ptr()), &a_.leading,
                 static_cast<const float*>(b_.tensor.const_data_ptr()), &b_.leading, &beta, result,
                 &leading_);
  }

  /// Null where ATen would take another way. It chooses operands and leading dimensions as
  /// addmm_impl_cpu_ does (ATen/native/LinearAlgebra.cpp) and cpublas::gemm's normalisation behind
  /// it (ATen/native/CPUBlas.cpp).
  static std::unique_ptr<Product> make(const at::Tensor& bias, const at::Tensor& a,
                                       const at::Tensor& b, const at::Tensor& result) {
    if (!is_matrix(a) || !is_matrix(b) || !is_matrix(result) || !result.is_contiguous())
      return nullptr;
    if (result.numel() == 0 || a.size(1) == 0) return nullptr;
    // a single element is a dot product to some versions of ATen
    if (result.numel() == 1) return nullptr;
    if (bias.defined() && !is_row_for(bias, result)) return nullptr;
    // sgemm sees columns first: the product of row-major matrices is that of the swapped transposes
    const bool is_by_column =
        result.stride(0) == 1 &&
        (result.size(1) == 1 || result.stride(1) >= std::max<std::int64_t>(1, result.size(0)));
    const int rows = is_by_column ? 0 : 1;
    const int columns = 1 - rows;
    const at::Tensor& first = is_by_column ? a : b;
    const at::Tensor& second = is_by_column ? b : a;
    auto made = std::make_unique<Product>();
    const std::int64_t m = result.size(rows), n = result.size(columns), k = first.size(columns);
    if (std::max({m, n, k}) > INT32_MAX) return nullptr;
    const auto left = factor(first, rows, columns, m, k);
    const auto right = factor(second, rows, columns, k, n);
    if (!left || !right || result.stride(columns) > INT32_MAX) return nullptr;
    made->a_ = *left;
    made->b_ = *right;
    made->m_ = static_cast<int>(m);
    made->n_ = static_cast<int>(n);
    made->k_ = static_cast<int>(k);
    made->leading_ = static_cast<int>(n == 1 ? m : result.stride(columns));
    made->bias_ = bias;
    made->result_ = result;
    made->normalize();
    return made;
  }

 private:
  static bool is_matrix(const at::Tensor& tensor) {
    return tensor.scalar_type() == at::kFloat && tensor.dim() == 2;
  }
  static bool is_row_for(const at::Tensor& bias, const at::Tensor& result) {
    return bias.scalar_type() == at::kFloat && bias.dim() == 1 && bias.is_contiguous() &&
           bias.size(0) == result.size(1);
  }

  /// `tensor` as a matrix of `height` by `width`, in the coordinates of columns first.
  static std::optional<Factor> factor(const at::Tensor& tensor, int rows, int columns,
                                      std::int64_t height, std::int64_t width) {
    const std::int64_t down = tensor.stride(rows), across = tensor.stride(columns);
    if (std::max(down, across) > INT32_MAX) return std::nullopt;
    if (down == 1 && across >= std::max<std::int64_t>(1, height)) {
      return Factor{tensor, 'n', static_cast<int>(across)};
    }
    if (across == 1 && down >= std::max<std::int64_t>(1, width)) {
      return Factor{tensor, 't', static_cast<int>(down)};
    }
    return std::nullopt;
  }

  /// Of a matrix of one column the distance to the next may be anything; BLAS wants it to be large
  /// enough.
  void normalize() {
    if (a_.transposed == 't' ? m_ == 1 : k_ == 1) a_.leading = a_.transposed == 't' ? k_ : m_;
    if (b_.transposed == 't' ? k_ == 1 : n_ == 1) b_.leading = b_.transposed == 't' ? n_ : k_;
  }

  void put_bias(float* result) const {
    const void* const row = bias_.const_data_ptr();
    const auto width = static_cast<std::size_t>(result_.size(1));
    for (std::int64_t i = 0; i < result_.size(0); ++i, result += width) {
      std::memcpy(result, row, width * sizeof(float));
    }
  }

  at::Tensor result_;
  at::Tensor bias_;
  Factor a_;
  Factor b_;
  int m_ = 0;
  int n_ = 0;
  int k_ = 0;
  int leading_ = 0;
};

Preparation product(const at::Tensor& bias, const at::Tensor& a, const at::Tensor& b,
                    const at::Tensor& result) {
  if (blas().sgemm == nullptr)
    return Preparation::refused("no BLAS that is known to be LibTorch's");
  if (auto made = Product::make(bias, a, b, result)) return {std::move(made), {}};
  return Preparation::refused("no float32 matrices that BLAS takes as they lie");
}

Preparation make_mm(const KernelSite& site) {
  const auto& given = site.call.arguments;
  return product({}, given[0].toTensor(), given[1].toTensor(), site.results.at(0));
}

bool is_one(const KernelSite& site, std::size_t argument) {
  return !site.varies.at(argument) && site.call.arguments[argument].toScalar().equal(1);
}

Preparation make_addmm(const KernelSite& site) {
  if (!is_one(site, 3) || !is_one(site, 4)) return Preparation::refused("factors other than 1");
  const auto& given = site.call.arguments;
  return product(given[0].toTensor(), given[1].toTensor(), given[2].toTensor(), site.results.at(0));
}

}  // namespace

void add_product_kernels(KernelTable& table) {
  table.add("aten::mm.out", &make_mm);
  table.add("aten::addmm.out", &make_addmm);
}

}  // namespace steptape::replayer::cpu
