#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "replayer/cpu/kernels/matrices.h"
#include "replayer/cpu/kernels/sgemm.h"

namespace steptape::replayer::cpu {

/// A product that is multiplied here (matrices.h), and not by BLAS.
class SmallProduct {
 public:
  /// Of the first elements of a, b, bias and result, modulo 64.
  using Addresses = std::array<std::uint8_t, 4>;

  /// None where a product of these shapes and strides, at such addresses, does not leave the bits
  /// of BLAS in a trial on made-up numbers, or takes longer than BLAS. The trial is made once for
  /// each kind of product and number of threads in a process. A trial is no proof, but an order of
  /// additions other than that of BLAS would show in some of the hundreds of sums it compares.
  static std::optional<SmallProduct> make(const MatrixProduct& product, const Addresses& addresses);

  /// False where an element became a NaN: which one, only BLAS can tell.
  bool run();

 private:
  explicit SmallProduct(const MatrixProduct& product);

  MatrixProduct product_;
  matrices::Product shape_{};
  std::vector<float> scratch_;
};

}  // namespace steptape::replayer::cpu
