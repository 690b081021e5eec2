#include <ATen/Context.h>

#include <optional>
#include <utility>

#include "live/ambient.h"
#include "replayer/cpu/kernels/blas.h"
#include "replayer/cpu/kernels/sgemm.h"
#include "replayer/cpu/kernels/small_product.h"
#include "replayer/cpu/kernels/table.h"

namespace steptape::replayer::cpu {
namespace {

class Product final : public Kernel {
 public:
  Product(Sgemm blas, std::optional<SmallProduct> small)
      : blas_(std::move(blas)), small_(std::move(small)) {}

  void run() override {
    if (!small_ || !small_->run()) blas_.run();
  }

 private:
  Sgemm blas_;
  std::optional<SmallProduct> small_;
};

Preparation product(const KernelSite& site, const MatrixProduct& matrices) {
  if (blas().sgemm == nullptr)
    return Preparation::refused("no BLAS that is known to be LibTorch's");
  // ATen may take another way with less precision; what the switch was is guarded
  constexpr auto kHighest = static_cast<std::uint8_t>(at::Float32MatmulPrecision::HIGHEST);
  if (live::Ambient::current().matmul_precision != kHighest)
    return Preparation::refused("a precision of products below the highest");
  auto blas = Sgemm::make(matrices);
  if (!blas) return Preparation::refused("no float32 matrices that BLAS takes as they lie");
  const auto address = [&](const at::Tensor& tensor) -> std::uint8_t {
    return tensor.defined() ? site.address_mod_64(tensor) : 0;
  };
  const auto lies_on_result = [&](const at::Tensor& tensor) {
    return tensor.defined() && tensor.storage().unsafeGetStorageImpl() ==
                                   matrices.result.storage().unsafeGetStorageImpl();
  };
  if (lies_on_result(matrices.a) || lies_on_result(matrices.b) || lies_on_result(matrices.bias))
    return {std::make_unique<Product>(*std::move(blas), std::nullopt), {}};
  auto small = SmallProduct::make(matrices, {address(matrices.a), address(matrices.b),
                                             address(matrices.bias), address(matrices.result)});
  return {std::make_unique<Product>(*std::move(blas), std::move(small)), {}};
}

Preparation make_mm(const KernelSite& site) {
  const auto& given = site.call.arguments;
  return product(site, {given[0].toTensor(), given[1].toTensor(), {}, site.results.at(0)});
}

bool is_one(const KernelSite& site, std::size_t argument) {
  return !site.varies.at(argument) && site.call.arguments[argument].toScalar().equal(1);
}

Preparation make_addmm(const KernelSite& site) {
  if (!is_one(site, 3) || !is_one(site, 4)) return Preparation::refused("factors other than 1");
  const auto& given = site.call.arguments;
  return product(
      site, {given[1].toTensor(), given[2].toTensor(), given[0].toTensor(), site.results.at(0)});
}

}  // namespace

void add_product_kernels(KernelTable& table) {
  table.add("aten::mm.out", &make_mm);
  table.add("aten::addmm.out", &make_addmm);
}

}  // namespace steptape::replayer::cpu
