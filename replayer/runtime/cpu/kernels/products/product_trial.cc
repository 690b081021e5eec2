#include "replayer/runtime/cpu/kernels/products/product_trial.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "live/stopwatch.h"
#include "replayer/runtime/cpu/kernels/floats.h"
#include "replayer/runtime/tensor_on.h"

namespace steptape::replayer::cpu {
namespace {

/// Elements to compare until an equal order of additions is believed.
constexpr std::int64_t kEnough = 512;

constexpr float kScales[] = {1e-20F, 1e-22F, 1e-25F, 1e19F};

/// A tensor that lies like another, at such an address.
at::Tensor lying_like(const at::Tensor& tensor, std::uint8_t address_mod_64) {
  trace::Tensor geometry;
  geometry.dtype = trace::DType::kFloat32;
  geometry.sizes = tensor.sizes().vec();
  geometry.strides = tensor.strides().vec();
  std::int64_t last = 0;
  for (std::int64_t i = 0; i < tensor.dim(); ++i) last += (tensor.size(i) - 1) * tensor.stride(i);
  const auto bytes = static_cast<std::size_t>(last + 1) * sizeof(float);
  return tensor_on(allocate(bytes, address_mod_64), geometry);
}

double us_of(ProductTrial::Expected run, int count) {
  const live::Stopwatch watch;
  for (int i = 0; i < count; ++i) run();
  return watch.us();
}

}  // namespace

std::vector<std::int64_t> kind_of(const MatrixProduct& product, const ProductAddresses& addresses) {
  std::vector<std::int64_t> kind = {at::get_num_threads(), product.bias.defined()};
  for (const at::Tensor* each : {&product.a, &product.b, &product.result}) {
    kind.insert(kind.end(), each->sizes().begin(), each->sizes().end());
    kind.insert(kind.end(), each->strides().begin(), each->strides().end());
  }
  kind.insert(kind.end(), addresses.begin(), addresses.end());
  return kind;
}

ProductTrial::ProductTrial(const MatrixProduct& product, const ProductAddresses& addresses)
    : product_{lying_like(product.a, addresses[0]), lying_like(product.b, addresses[1]),
               product.bias.defined() ? lying_like(product.bias, addresses[2]) : at::Tensor(),
               lying_like(product.result, addresses[3])},
      expected_(static_cast<std::size_t>(product.result.numel())) {}

bool ProductTrial::is_faster(Expected own, Expected other) {
  const double once = std::max(0.1, us_of(other, 1));
  const int count = std::clamp(static_cast<int>(20 / once), 1, 16);
  double own_us = std::numeric_limits<double>::infinity(), other_us = own_us;
  for (int round = 0; round < 5; ++round) {
    other_us = std::min(other_us, us_of(other, count));
    own_us = std::min(own_us, us_of(own, count));
  }
  return own_us < 0.95 * other_us;
}

bool ProductTrial::agree_once(Expected expected, Own own) { return agree_on(1, expected, own); }

bool ProductTrial::agree(Expected expected, Own own) {
  const std::int64_t rounds = std::max<std::int64_t>(2, kEnough / product_.result.numel());
  for (std::int64_t round = 0; round < rounds; ++round) {
    if (!agree_once(expected, own)) return false;
  }
  return agree_on_zeros(expected, own) &&
         std::ranges::all_of(kScales, [&](float scale) { return agree_on(scale, expected, own); });
}

/// On numbers of about the size of `scale`, with zeros of both signs among those that are not 1.
bool ProductTrial::agree_on(float scale, Expected expected, Own own) {
  fill(scale);
  return compare(expected, own);
}

/// All terms are -0, as is the bias: a sum that begins with a product stays -0.
bool ProductTrial::agree_on_zeros(Expected expected, Own own) {
  for (const auto& [tensor, number] :
       {std::pair(&product_.a, 0.0F), {&product_.b, -1.0F}, {&product_.bias, -0.0F}}) {
    if (tensor->defined()) std::ranges::fill(elements_of(*tensor), number);
  }
  return compare(expected, own);
}

bool ProductTrial::compare(Expected expected, Own own) {
  expected();
  float* const result = writable_floats_of(product_.result);
  std::ranges::copy_n(result, product_.result.numel(), expected_.begin());
  // what is not written must not look right
  std::fill_n(result, product_.result.numel(), 0.5F);
  if (!own()) return std::ranges::any_of(expected_, [](float x) { return std::isnan(x); });
  return std::memcmp(result, expected_.data(), expected_.size() * sizeof(float)) == 0;
}

std::span<float> ProductTrial::elements_of(const at::Tensor& tensor) {
  return {writable_floats_of(tensor), tensor.storage().nbytes() / sizeof(float)};
}

/// From -1 to 1 times `scale`: of a number, 24 bits are made up, as many as it holds.
void ProductTrial::fill(float scale) {
  constexpr float kUnit = 1.0F / (1 << 23);
  for (const at::Tensor* tensor : {&product_.a, &product_.b, &product_.bias}) {
    if (!tensor->defined()) continue;
    for (float& element : elements_of(*tensor)) {
      const auto drawn = static_cast<std::uint32_t>(random_());
      element = (static_cast<float>(drawn >> 7) * kUnit - 1) * scale;
      if (scale != 1 && drawn % 8 == 0) element = std::copysign(0.0F, element);
    }
  }
}

}  // namespace steptape::replayer::cpu
