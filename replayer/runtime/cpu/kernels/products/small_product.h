#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "replayer/planner/program.h"
#include "replayer/runtime/call.h"
#include "replayer/runtime/cpu/kernels/products/matrices.h"
#include "replayer/runtime/cpu/kernels/products/product_trial.h"
#include "replayer/runtime/cpu/kernels/products/sgemm.h"
#include "replayer/runtime/memory.h"

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

  /// Whether it is that way of multiplying that leaves the bits of BLAS at these addresses, too.
  bool holds_at(const ProductAddresses& addresses, bool blas_is_alone) const;
  /// Does what others need of it when it does not run.
  void pack();

  /// False where an element became a NaN: which one, only BLAS can tell.
  bool run();

  const at::Tensor& result() const { return product_.result; }
  /// Whether it takes longer than BLAS does while it packs its second factor itself.
  bool pays_only_packed() const { return pays_only_packed_; }
  /// Whether it packs its second factor, which lies on `factor()`.
  bool packs() const { return packs_; }
  const c10::StorageImpl* factor() const { return product_.b.storage().unsafeGetStorageImpl(); }
  /// Whether it could do with the second factor as the other has packed it.
  bool can_share_with(const SmallProduct& other) const;
  /// From now on it reads what the other packs, which must have run before, and since when nobody
  /// has written the factor.
  void share_with(SmallProduct& other);

 private:
  /// What a trial found out.
  struct Found {
    const matrices::Code* code = nullptr;  ///< null: BLAS it is
    bool pays_only_packed = false;
  };

  SmallProduct(const MatrixProduct& product, const Found& found);
  static Found try_out(const MatrixProduct& product, const ProductAddresses& addresses,
                       bool blas_is_alone);

  void make_room();

  MatrixProduct product_;
  matrices::Product shape_{};
  const matrices::Code* code_;
  bool pays_only_packed_;
  bool packs_ = false;
  std::shared_ptr<std::vector<float>> packed_;  ///< null: the factor is read where it lies
};

/// Products that are multiplied here and have the same second factor, such as the weight of a cell
/// that each step of a sequence goes through, pack it once a run: the first of them does, and the
/// others read it. `calls` have their kernels and are in the order of the run.
void share_packed_factors(const Program& program, const Memory& memory, std::vector<Call>& calls);

}  // namespace steptape::replayer::cpu
