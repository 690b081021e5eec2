#include <algorithm>
#include <cmath>
#include <vector>

#include "replayer/runtime/cpu/kernels/floats.h"
#include "replayer/runtime/cpu/kernels/planes.h"
#include "replayer/runtime/cpu/kernels/table.h"

namespace steptape::replayer::cpu {
namespace {

/// Tensors of one element for each channel, and the numbers.
struct BatchNormSite {
  const Call& call;
  at::Tensor in;
  at::Tensor weight, bias, running_mean, running_var;  ///< undefined where there are none
  double momentum, eps;
  at::Tensor out, save_mean, save_invstd;
};

float* floats(const at::Tensor& tensor) {
  return tensor.defined() ? writable_floats_of(tensor) : nullptr;
}

/// Batch normalisation while training, of images that lie channel by channel
/// (ATen/native/Normalization.cpp).
class BatchNorm final : public Kernel {
 public:
  explicit BatchNorm(BatchNormSite site) : site_(std::move(site)) {
    const auto channels = static_cast<std::size_t>(site_.in.size(1));
    for (std::vector<float>* each : {&mean_, &squares_, &invstd_, &factor_, &term_}) {
      each->resize(channels);
    }
  }

  void run() override {
    const std::int64_t batch = site_.in.size(0), channels = site_.in.size(1);
    const channels::Images images{floats_of(site_.in), batch, channels,
                                  site_.in.numel() / batch / channels};
    channels::collect(images, mean_.data(), squares_.data());
    find_terms(images.batch * images.size);
    const auto is_number = [](float term) { return !std::isnan(term); };
    // which NaN comes out where two go in is for ATen to say; nothing has been written yet
    if (!std::ranges::all_of(term_, is_number) || !std::ranges::all_of(factor_, is_number)) {
      return dispatch(site_.call, {site_.out, site_.save_mean, site_.save_invstd});
    }
    channels::scale(images, factor_.data(), term_.data(), floats(site_.out));
    std::ranges::copy(mean_, floats(site_.save_mean));
    std::ranges::copy(invstd_, floats(site_.save_invstd));
    move_running(images.batch * images.size);
  }

 private:
  void find_terms(std::int64_t count) {
    const float* const weight = floats(site_.weight);
    const float* const bias = floats(site_.bias);
    for (std::size_t c = 0; c < mean_.size(); ++c) {
      const double var = squares_[c] / static_cast<float>(count);
      const bool is_flat = var == 0 && site_.eps == 0;
      invstd_[c] = is_flat ? 0.0F : static_cast<float>(1 / std::sqrt(var + site_.eps));
      factor_[c] = invstd_[c] * (weight != nullptr ? weight[c] : 1.0F);
      term_[c] = std::fma(-mean_[c], factor_[c], bias != nullptr ? bias[c] : 0.0F);
    }
  }

  void move_running(std::int64_t count) const {
    float* const mean = floats(site_.running_mean);
    float* const var = floats(site_.running_var);
    const auto momentum = static_cast<float>(site_.momentum);
    const float keep = 1 - momentum;
    for (std::size_t c = 0; c < mean_.size(); ++c) {
      if (mean != nullptr) mean[c] = momentum * mean_[c] + keep * mean[c];
      if (var == nullptr) continue;
      const double unbiased = squares_[c] / static_cast<float>(count - 1);
      const float kept = keep * var[c];
      var[c] = static_cast<float>(momentum * unbiased + kept);
    }
  }

  BatchNormSite site_;
  std::vector<float> mean_, squares_, invstd_, factor_, term_;
};

bool is_row(const at::Tensor& tensor) {
  return !tensor.defined() || (tensor.scalar_type() == at::kFloat && tensor.is_contiguous());
}

/// aten::native_batch_norm.out(input, weight, bias, running_mean, running_var, training, momentum,
/// eps, out, save_mean, save_invstd)
Preparation make_batch_norm(const KernelSite& site) {
  const auto& given = site.call.arguments;
  const auto optional = [&](std::size_t i) {
    return given[i].isTensor() ? given[i].toTensor() : at::Tensor();
  };
  const BatchNormSite norm{.call = site.call,
                           .in = given[0].toTensor(),
                           .weight = optional(1),
                           .bias = optional(2),
                           .running_mean = optional(3),
                           .running_var = optional(4),
                           .momentum = given[6].toDouble(),
                           .eps = given[7].toDouble(),
                           .out = site.results.at(0),
                           .save_mean = site.results.at(1),
                           .save_invstd = site.results.at(2)};
  const bool is_fixed = !site.varies[5] && !site.varies[6] && !site.varies[7];
  const std::int64_t rows = norm.in.dim() < 2 ? 0 : norm.in.size(0) * norm.in.size(1);
  // of images of one element ATen adds up rows, and in another order
  const bool has_images = rows != 0 && norm.in.numel() / rows > 1;
  const bool is_good = is_fixed && given[5].toBool() && norm.in.scalar_type() == at::kFloat &&
                       has_images && norm.in.is_contiguous() && norm.out.is_contiguous() &&
                       is_row(norm.weight) && is_row(norm.bias) && is_row(norm.running_mean) &&
                       is_row(norm.running_var) && is_row(norm.save_mean) &&
                       is_row(norm.save_invstd) &&
                       is_for_one_thread(norm.in.numel(), kGainOverPlanes);
  if (!is_good) return Preparation::refused("no float32 images channel by channel in training");
  return {std::make_unique<BatchNorm>(norm), {}};
}

}  // namespace

void add_normalization_kernels(KernelTable& table) {
  table.add("aten::native_batch_norm.out", &with_atens_vectors<make_batch_norm>);
}

}  // namespace steptape::replayer::cpu
