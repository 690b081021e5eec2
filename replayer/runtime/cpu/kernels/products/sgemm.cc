#include "replayer/runtime/cpu/kernels/products/sgemm.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "replayer/runtime/cpu/kernels/floats.h"

namespace steptape::replayer::cpu {

bool Sgemm::is_matrix(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kFloat && tensor.dim() == 2;
}

bool Sgemm::is_row_for(const at::Tensor& bias, const at::Tensor& result) {
  return bias.scalar_type() == at::kFloat && bias.dim() == 1 && bias.is_contiguous() &&
         bias.size(0) == result.size(1);
}

/// `tensor` as a matrix of `height` by `width`, in the coordinates of columns first.
std::optional<Sgemm::Factor> Sgemm::factor(const at::Tensor& tensor, int rows, int columns,
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

std::optional<Sgemm> Sgemm::make(const MatrixProduct& product) {
  const auto& [a, b, bias, result] = product;
  if (!is_matrix(a) || !is_matrix(b) || !is_matrix(result) || !result.is_contiguous())
    return std::nullopt;
  if (result.numel() == 0 || a.size(1) == 0) return std::nullopt;
  // a single element is a dot product to some versions of ATen
  if (result.numel() == 1) return std::nullopt;
  if (bias.defined() && !is_row_for(bias, result)) return std::nullopt;
  // sgemm sees columns first: the product of row-major matrices is that of the swapped transposes
  const bool is_by_column =
      result.stride(0) == 1 &&
      (result.size(1) == 1 || result.stride(1) >= std::max<std::int64_t>(1, result.size(0)));
  const int rows = is_by_column ? 0 : 1;
  const int columns = 1 - rows;
  const at::Tensor& first = is_by_column ? a : b;
  const at::Tensor& second = is_by_column ? b : a;
  const std::int64_t m = result.size(rows), n = result.size(columns), k = first.size(columns);
  if (std::max({m, n, k}) > INT32_MAX) return std::nullopt;
  const auto left = factor(first, rows, columns, m, k);
  const auto right = factor(second, rows, columns, k, n);
  if (!left || !right || result.stride(columns) > INT32_MAX) return std::nullopt;
  Sgemm made;
  made.a_ = *left;
  made.b_ = *right;
  made.m_ = static_cast<int>(m);
  made.n_ = static_cast<int>(n);
  made.k_ = static_cast<int>(k);
  made.leading_ = static_cast<int>(n == 1 ? m : result.stride(columns));
  made.bias_ = bias;
  made.result_ = result;
  made.normalize();
  return made;
}

/// Of a matrix of one column the distance to the next may be anything; BLAS wants it to be large
/// enough.
void Sgemm::normalize() {
  if (a_.transposed == 't' ? m_ == 1 : k_ == 1) a_.leading = a_.transposed == 't' ? k_ : m_;
  if (b_.transposed == 't' ? k_ == 1 : n_ == 1) b_.leading = b_.transposed == 't' ? n_ : k_;
}

void Sgemm::put_bias(float* result) const {
  const float* const row = floats_of(bias_);
  const auto width = static_cast<std::size_t>(result_.size(1));
  for (std::int64_t i = 0; i < result_.size(0); ++i, result += width) {
    std::memcpy(result, row, width * sizeof(float));
  }
}

void Sgemm::run() const {
  float* const result = writable_floats_of(result_);
  if (bias_.defined()) put_bias(result);
  const float one = 1;
  const float beta = bias_.defined() ? 1 : 0;
  std::optional<OneThread> alone;
  if (is_alone_) alone.emplace();
  blas().sgemm(&a_.transposed, &b_.transposed, &m_, &n_, &k_, &one, floats_of(a_.tensor),
               &a_.leading, floats_of(b_.tensor), &b_.leading, &beta, result, &leading_);
}

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
