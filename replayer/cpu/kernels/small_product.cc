#include "replayer/cpu/kernels/small_product.h"

#include <map>
#include <mutex>

#include "replayer/cpu/kernels/floats.h"
#include "replayer/cpu/kernels/preparation.h"

namespace steptape::replayer::cpu {
namespace {

/// From here on BLAS multiplies faster, and in blocks, which is another order of additions.
constexpr std::int64_t kMostDepth = 256;
constexpr std::int64_t kMostTerms = std::int64_t{32} * 128 * 128;

}  // namespace

SmallProduct::SmallProduct(const MatrixProduct& product) : product_(product) {
  const auto& [a, b, bias, result] = product;
  shape_ = {.rows = result.size(0),
            .columns = result.size(1),
            .depth = a.size(1),
            .a = nullptr,
            .a_row = a.stride(0),
            .a_column = a.stride(1),
            .b = nullptr,
            .b_row = b.stride(0),
            .b_column = b.stride(1),
            .c = nullptr,
            .c_row = result.size(1),
            .bias = nullptr,
            .scratch = nullptr};
  scratch_.resize(static_cast<std::size_t>(matrices::scratch_of(shape_)));
}

std::optional<SmallProduct> SmallProduct::make(const MatrixProduct& product,
                                               const ProductAddresses& addresses,
                                               bool blas_is_alone) {
  const std::int64_t depth = product.a.size(1);
  const std::int64_t terms = product.result.numel() * depth;
  if (!has_atens_vectors() || depth > kMostDepth || terms > kMostTerms) return std::nullopt;
  static std::mutex mutex;
  static std::map<std::vector<std::int64_t>, bool> known;
  const std::lock_guard lock(mutex);
  const auto [entry, is_new] = known.try_emplace(kind_of(product, addresses), false);
  if (is_new) {
    ProductTrial trial(product, addresses);
    std::optional<Sgemm> blas = Sgemm::make(trial.product());
    if (blas && blas_is_alone) blas->go_alone();
    SmallProduct own(trial.product());
    const auto by_blas = [&] { blas->run(); };
    const auto here = [&] { return own.run(); };
    // one look at the bits and the time, which most that fail do not pass, then all of them
    entry->second = blas && trial.agree_once(by_blas, here) &&
                    ProductTrial::is_faster([&] { own.run(); }, by_blas) &&
                    trial.agree(by_blas, here);
  }
  return entry->second ? std::optional(SmallProduct(product)) : std::nullopt;
}

bool SmallProduct::run() {
  shape_.a = floats_of(product_.a);
  shape_.b = floats_of(product_.b);
  shape_.c = writable_floats_of(product_.result);
  shape_.bias = product_.bias.defined() ? floats_of(product_.bias) : nullptr;
  shape_.scratch = scratch_.data();
  return matrices::multiply(shape_);
}

}  // namespace steptape::replayer::cpu
