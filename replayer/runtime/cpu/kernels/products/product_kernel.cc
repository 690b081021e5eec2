#include "replayer/runtime/cpu/kernels/products/product_kernel.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "live/ambient.h"
#include "replayer/runtime/cpu/kernels/products/sgemm.h"
#include "replayer/runtime/cpu/kernels/table.h"

namespace steptape::replayer::cpu {
namespace {

bool lies_on_result(const MatrixProduct& product) {
  const auto* result = product.result.storage().unsafeGetStorageImpl();
  const auto is_on_it = [result](const at::Tensor& tensor) {
    return tensor.defined() && tensor.storage().unsafeGetStorageImpl() == result;
  };
  return is_on_it(product.a) || is_on_it(product.b) || is_on_it(product.bias);
}

}  // namespace

std::unique_ptr<ProductKernel> ProductKernel::make(const MatrixProduct& product,
                                                   const ProductAddresses& addresses,
                                                   const Moving& moving) {
  auto blas = Sgemm::make(product);
  if (!blas) return nullptr;
  std::unique_ptr<ProductKernel> made(new ProductKernel(product, *std::move(blas), moving));
  const bool is_alone = is_better_alone(product, addresses);
  made->blas_.go_alone(is_alone);
  if (!lies_on_result(product)) made->small_ = SmallProduct::make(product, addresses, is_alone);
  made->is_here_ = made->small_ && !made->small_->pays_only_packed();
  made->ways_.push_back({addresses, made->small_.has_value(), is_alone});
  return made;
}

ProductAddresses ProductKernel::addresses_now() const {
  ProductAddresses addresses = ways_.front().addresses;
  const at::Tensor* const factors[] = {&product_.a, &product_.b, &product_.bias};
  for (std::size_t i = 0; i < moving_.size(); ++i) {
    if (!moving_[i]) continue;
    addresses[i] = static_cast<std::uint8_t>(
        reinterpret_cast<std::uintptr_t>(factors[i]->const_data_ptr()) % 64);
  }
  return addresses;
}

void ProductKernel::adapt() {
  const ProductAddresses addresses = addresses_now();
  if (std::ranges::find(ways_, addresses, &Way::addresses) != ways_.end()) return;
  const bool is_alone = is_better_alone(product_, addresses);
  ways_.push_back({addresses, small_ && small_->holds_at(addresses, is_alone), is_alone});
}

const ProductKernel::Way& ProductKernel::way_now() {
  const ProductAddresses addresses = addresses_now();
  if (addresses == ways_[now_].addresses) return ways_[now_];
  const auto found = std::ranges::find(ways_, addresses, &Way::addresses);
  // as the op does it
  static constexpr Way kUntried{};
  if (found == ways_.end()) return kUntried;
  now_ = static_cast<std::size_t>(found - ways_.begin());
  return *found;
}

void ProductKernel::run() {
  if (std::ranges::none_of(moving_, [](bool moves) { return moves; })) {
    if (!is_here_ || !small_->run()) blas_.run();
    return;
  }
  const Way& way = way_now();
  if (is_here_) {
    if (way.may_be_here && small_->run()) return;
    if (!way.may_be_here) small_->pack();
  }
  blas_.go_alone(way.is_alone);
  blas_.run();
}

namespace {

/// BLAS shares larger products out well enough, and their trial would take long.
constexpr std::int64_t kMostTermsAlone = std::int64_t{128} * 128 * 128;

bool try_alone(const MatrixProduct& product, const ProductAddresses& addresses) {
  if (blas().set_threads == nullptr) return false;
  ProductTrial trial(product, addresses);
  const std::optional<Sgemm> sgemm = Sgemm::make(trial.product());
  if (!sgemm) return false;
  Sgemm caller = *sgemm;
  caller.go_alone();
  const auto with_all = [&] { sgemm->run(); };
  const auto by_the_caller = [&] {
    caller.run();
    return true;
  };
  return trial.agree(with_all, by_the_caller) &&
         ProductTrial::is_faster([&] { caller.run(); }, with_all);
}

}  // namespace

bool is_better_alone(const MatrixProduct& product, const ProductAddresses& addresses) {
  if (at::get_num_threads() < 2) return false;
  if (product.result.numel() * product.a.size(1) > kMostTermsAlone) return false;
  static std::mutex mutex;
  static std::map<std::vector<std::int64_t>, bool> known;
  const std::lock_guard lock(mutex);
  const auto [entry, is_new] = known.try_emplace(kind_of(product, addresses));
  if (is_new) entry->second = try_alone(product, addresses);
  return entry->second;
}

namespace {

Preparation product(const KernelSite& site, const MatrixProduct& matrices) {
  if (blas().sgemm == nullptr)
    return Preparation::refused("no BLAS that is known to be LibTorch's");
  // ATen may take another way with less precision; what the switch was is guarded
  constexpr auto kHighest = static_cast<std::int32_t>(at::Float32MatmulPrecision::HIGHEST);
  if (live::Ambient::current()["matmul_precision"] != kHighest)
    return Preparation::refused("a precision of products below the highest");
  const auto address = [&](const at::Tensor& tensor) -> std::uint8_t {
    return tensor.defined() ? site.address_mod_64(tensor) : 0;
  };
  const auto moves = [&](const at::Tensor& tensor) {
    return tensor.defined() && site.is_moving(tensor);
  };
  auto kernel = ProductKernel::make(
      matrices,
      {address(matrices.a), address(matrices.b), address(matrices.bias), address(matrices.result)},
      {moves(matrices.a), moves(matrices.b), moves(matrices.bias)});
  if (kernel == nullptr)
    return Preparation::refused("no float32 matrices that BLAS takes as they lie");
  return {std::move(kernel), {}};
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
