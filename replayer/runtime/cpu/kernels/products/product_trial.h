#pragma once

#include <c10/util/FunctionRef.h>

#include <array>
#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "replayer/runtime/cpu/kernels/products/sgemm.h"

namespace steptape::replayer::cpu {

/// Of the first elements of a, b, bias and result, modulo 64.
using ProductAddresses = std::array<std::uint8_t, 4>;

/// Sizes and strides of a product, its addresses modulo 64, and LibTorch's number of threads: what
/// decides about the order of additions.
std::vector<std::int64_t> kind_of(const MatrixProduct& product, const ProductAddresses& addresses);

/// A product of made-up numbers in memory of its own that lies as a product of the plan does, to
/// see whether two ways to multiply leave the same bits. A trial is no proof, but another order of
/// additions would show in some of the hundreds of sums that it compares.
class ProductTrial {
 public:
  ProductTrial(const MatrixProduct& product, const ProductAddresses& addresses);

  const MatrixProduct& product() const { return product_; }

  using Expected = c10::function_ref<void()>;
  /// False: an element became a NaN, and the other way has to do it.
  using Own = c10::function_ref<bool()>;
  /// On one set of numbers.
  bool agree_once(Expected expected, Own own);
  /// On enough of them, and on sums of denormals, of zeros of both signs, and beyond what is
  /// finite.
  bool agree(Expected expected, Own own);

  /// Whether the one takes less time than the other, by more than chance.
  static bool is_faster(Expected own, Expected other);

 private:
  bool agree_on_zeros(Expected expected, Own own);
  bool agree_on(float scale, Expected expected, Own own);
  bool compare(Expected expected, Own own);
  static std::span<float> elements_of(const at::Tensor& tensor);
  void fill(float scale);

  MatrixProduct product_;
  std::vector<float> expected_;
  std::minstd_rand random_{1};
};

}  // namespace steptape::replayer::cpu
