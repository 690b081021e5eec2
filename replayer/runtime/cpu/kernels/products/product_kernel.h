#pragma once

#include <array>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "replayer/runtime/call.h"
#include "replayer/runtime/cpu/kernels/products/product_trial.h"
#include "replayer/runtime/cpu/kernels/products/sgemm.h"
#include "replayer/runtime/cpu/kernels/products/small_product.h"

namespace steptape::replayer::cpu {

/// Whether BLAS on the calling thread alone leaves the bits that it leaves on all threads, and is
/// faster. Tried once for each kind of product in a process.
bool is_better_alone(const MatrixProduct& product, const ProductAddresses& addresses);

/// A product of matrices, by BLAS or here: which it is, was tried for where its factors lie, modulo
/// 64. Factors that are inputs may lie elsewhere later, where it is tried anew.
class ProductKernel final : public Kernel {
 public:
  /// Which of a, b and bias may lie elsewhere.
  using Moving = std::array<bool, 3>;

  /// None where ATen would take another way.
  static std::unique_ptr<ProductKernel> make(const MatrixProduct& product,
                                             const ProductAddresses& addresses,
                                             const Moving& moving);

  void run() override;
  void adapt() override;

  /// How it could be multiplied here; null: it could not.
  SmallProduct* small() { return small_ ? &*small_ : nullptr; }
  /// From now on it is.
  void multiply_here() { is_here_ = true; }

 private:
  struct Way {
    ProductAddresses addresses;
    bool may_be_here;
    bool is_alone;
  };
  ProductKernel(MatrixProduct product, Sgemm blas, const Moving& moving)
      : product_(std::move(product)), blas_(std::move(blas)), moving_(moving) {}

  ProductAddresses addresses_now() const;
  const Way& way_now();

  MatrixProduct product_;
  Sgemm blas_;
  Moving moving_;
  std::optional<SmallProduct> small_;
  bool is_here_ = false;
  std::vector<Way> ways_;  ///< the recorded one first
  std::size_t now_ = 0;
};

}  // namespace steptape::replayer::cpu
