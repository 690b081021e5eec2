#pragma once

#include <optional>
#include <vector>

#include "replayer/cpu/kernels/matrices.h"
#include "replayer/cpu/kernels/product_trial.h"
#include "replayer/cpu/kernels/sgemm.h"

namespace steptape::replayer::cpu {

/// A product that is multiplied here (matrices.h), and not by BLAS.
class SmallProduct {
 public:
  /// None where a product of these shapes and strides, at such addresses, does not leave the bits
  /// of BLAS in a trial, or takes longer than BLAS does (on one thread, if it is alone). The trial
  /// is made once for each kind of product in a process.
  static std::optional<SmallProduct> make(const MatrixProduct& product,
                                          const ProductAddresses& addresses,
                                          bool blas_is_alone = false);

  /// False where an element became a NaN: which one, only BLAS can tell.
  bool run();

 private:
  explicit SmallProduct(const MatrixProduct& product);

  MatrixProduct product_;
  matrices::Product shape_{};
  std::vector<float> scratch_;
};

}  // namespace steptape::replayer::cpu
