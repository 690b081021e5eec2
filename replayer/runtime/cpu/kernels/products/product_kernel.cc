#include "replayer/runtime/cpu/kernels/products/product_kernel.h"

#include <algorithm>
#include <cstdint>

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

}  // namespace steptape::replayer::cpu
