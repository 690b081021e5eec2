#include "replayer/cpu/kernels/small_product.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <mutex>
#include <random>
#include <span>
#include <utility>

#include "replayer/cpu/kernels/floats.h"
#include "replayer/cpu/kernels/preparation.h"
#include "replayer/cpu/tensor_on.h"

namespace steptape::replayer::cpu {
namespace {

/// From here on BLAS multiplies faster, and in blocks, which is another order of additions.
constexpr std::int64_t kMostDepth = 256;
constexpr std::int64_t kMostTerms = std::int64_t{32} * 128 * 128;

/// Elements to compare until an equal order of additions is believed.
constexpr std::int64_t kEnough = 512;

/// Sizes and strides of a product, its addresses modulo 64, and the number of threads.
using Kind = std::vector<std::int64_t>;

Kind kind_of(const MatrixProduct& product, const SmallProduct::Addresses& addresses) {
  Kind kind = {at::get_num_threads(), product.bias.defined()};
  for (const at::Tensor* each : {&product.a, &product.b, &product.result}) {
    kind.insert(kind.end(), each->sizes().begin(), each->sizes().end());
    kind.insert(kind.end(), each->strides().begin(), each->strides().end());
  }
  kind.insert(kind.end(), addresses.begin(), addresses.end());
  return kind;
}

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

class Trial {
 public:
  Trial(const MatrixProduct& product, const SmallProduct::Addresses& addresses)
      : product_{lying_like(product.a, addresses[0]), lying_like(product.b, addresses[1]),
                 product.bias.defined() ? lying_like(product.bias, addresses[2]) : at::Tensor(),
                 lying_like(product.result, addresses[3])},
        expected_(static_cast<std::size_t>(product.result.numel())) {}

  const MatrixProduct& product() const { return product_; }

  /// One look at the bits and the time, which most that fail do not pass, then all of them.
  bool passes(const Sgemm& blas, SmallProduct& own) {
    return leaves_the_bits(blas, own, 1) && is_faster(blas, own) && leaves_all_bits(blas, own);
  }

 private:
  bool leaves_all_bits(const Sgemm& blas, SmallProduct& own) {
    const std::int64_t rounds = std::max<std::int64_t>(2, kEnough / product_.result.numel());
    for (std::int64_t round = 0; round < rounds; ++round) {
      if (!leaves_the_bits(blas, own, 1)) return false;
    }
    // sums of denormals, of what is rounded to zeros of both signs, and beyond what is finite
    return leaves_the_bits_of_zeros(blas, own) && std::ranges::all_of(kScales, [&](float scale) {
             return leaves_the_bits(blas, own, scale);
           });
  }

  static bool is_faster(const Sgemm& blas, SmallProduct& own) {
    const double once = std::max(0.1, us_of([&] { blas.run(); }, 1));
    const int count = std::clamp(static_cast<int>(20 / once), 1, 16);
    double own_us = std::numeric_limits<double>::infinity(), blas_us = own_us;
    for (int round = 0; round < 5; ++round) {
      blas_us = std::min(blas_us, us_of([&] { blas.run(); }, count));
      own_us = std::min(own_us, us_of([&] { own.run(); }, count));
    }
    return own_us < 0.95 * blas_us;
  }

  template <typename Run>
  static double us_of(Run&& run, int count) {
    using Clock = std::chrono::steady_clock;
    const auto start = Clock::now();
    for (int i = 0; i < count; ++i) run();
    return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
  }

  static constexpr float kScales[] = {1e-20F, 1e-22F, 1e-25F, 1e19F};

  /// On numbers of about the size of `scale`, with zeros of both signs among those that are not 1.
  bool leaves_the_bits(const Sgemm& blas, SmallProduct& own, float scale) {
    fill(scale);
    return leaves_the_bits(blas, own);
  }

  /// All terms are -0, as is the bias: a sum that begins with a product stays -0.
  bool leaves_the_bits_of_zeros(const Sgemm& blas, SmallProduct& own) {
    for (const auto& [tensor, number] :
         {std::pair(&product_.a, 0.0F), {&product_.b, -1.0F}, {&product_.bias, -0.0F}}) {
      if (tensor->defined()) std::ranges::fill(elements_of(*tensor), number);
    }
    return leaves_the_bits(blas, own);
  }

  bool leaves_the_bits(const Sgemm& blas, SmallProduct& own) {
    blas.run();
    const float* const result = floats_of(product_.result);
    std::ranges::copy_n(result, product_.result.numel(), expected_.begin());
    if (!own.run()) return std::ranges::any_of(expected_, [](float x) { return std::isnan(x); });
    return std::memcmp(result, expected_.data(), expected_.size() * sizeof(float)) == 0;
  }

  static std::span<float> elements_of(const at::Tensor& tensor) {
    return {writable_floats_of(tensor), tensor.storage().nbytes() / sizeof(float)};
  }

  void fill(float scale) {
    for (const at::Tensor* tensor : {&product_.a, &product_.b, &product_.bias}) {
      if (!tensor->defined()) continue;
      for (float& element : elements_of(*tensor)) {
        element = normal_(random_) * scale;
        if (scale != 1 && random_() % 8 == 0) element = std::copysign(0.0F, element);
      }
    }
  }

  MatrixProduct product_;
  std::vector<float> expected_;
  std::minstd_rand random_{1};
  std::normal_distribution<float> normal_;
};

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
                                               const Addresses& addresses) {
  const std::int64_t depth = product.a.size(1);
  const std::int64_t terms = product.result.numel() * depth;
  if (!has_atens_vectors() || depth > kMostDepth || terms > kMostTerms) return std::nullopt;
  static std::mutex mutex;
  static std::map<Kind, bool> known;
  const std::lock_guard lock(mutex);
  const auto [entry, is_new] = known.try_emplace(kind_of(product, addresses), false);
  if (is_new) {
    Trial trial(product, addresses);
    const std::optional<Sgemm> blas = Sgemm::make(trial.product());
    SmallProduct own(trial.product());
    entry->second = blas && trial.passes(*blas, own);
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
