#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "replayer/cpu/kernels/sgemm.h"
#include "replayer/cpu/kernels/small_product.h"
#include "replayer/run/kernel.h"

namespace steptape::replayer::cpu {

/// A product of matrices, by BLAS or here.
class ProductKernel final : public Kernel {
 public:
  ProductKernel(Sgemm blas, std::optional<SmallProduct> small, bool runs_anywhere)
      : blas_(std::move(blas)),
        small_(std::move(small)),
        is_here_(small_ && !small_->pays_only_packed()),
        runs_anywhere_(runs_anywhere) {}

  void run() override {
    if (!is_here_ || !small_->run()) blas_.run();
  }
  bool runs_anywhere() const override { return runs_anywhere_; }
  std::vector<Use> own_uses() const override {
    return is_here_ ? small_->shared_uses() : std::vector<Use>();
  }

  /// How it could be multiplied here; null: it could not.
  SmallProduct* small() { return small_ ? &*small_ : nullptr; }
  /// From now on it is.
  void multiply_here() { is_here_ = true; }

 private:
  Sgemm blas_;
  std::optional<SmallProduct> small_;
  bool is_here_;
  bool runs_anywhere_;
};

}  // namespace steptape::replayer::cpu
