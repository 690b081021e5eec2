#include <ATen/ATen.h>
#include <torch/nn/modules/adaptive.h>
#include <torch/nn/modules/distance.h>
#include <torch/nn/modules/loss.h>

#include "module_options_probe.h"

namespace steptape::live {
namespace {

namespace nn = torch::nn;
using Sizes = std::vector<std::int64_t>;

at::Tensor other_loss() { return at::ones({1}); }

template <typename Module>
void probe_reduction() {
  ModuleProbe<Module>(Module()).option("reduction", &OptionsOf<Module>::reduction, torch::kSum);
}

template <typename Module>
void probe_margin() {
  ModuleProbe<Module>(Module())
      .option("margin", &OptionsOf<Module>::margin, 0.5)
      .option("reduction", &OptionsOf<Module>::reduction, torch::kSum);
}

template <typename Module>
void probe_weighted() {
  ModuleProbe<Module>(Module())
      .option("weight", &OptionsOf<Module>::weight, other_loss())
      .option("reduction", &OptionsOf<Module>::reduction, torch::kSum);
}

TEST(ModuleOptionLossesTest, Losses) {
  probe_reduction<nn::L1Loss>();
  probe_reduction<nn::MSELoss>();
  probe_reduction<nn::MultiLabelMarginLoss>();
  probe_reduction<nn::SoftMarginLoss>();
  probe_margin<nn::HingeEmbeddingLoss>();
  probe_margin<nn::CosineEmbeddingLoss>();
  probe_margin<nn::MarginRankingLoss>();
  probe_weighted<nn::BCELoss>();
  probe_weighted<nn::MultiLabelSoftMarginLoss>();
  ModuleProbe(nn::KLDivLoss())
      .option("reduction", &nn::KLDivLossOptions::reduction, torch::kBatchMean)
      .option("log_target", &nn::KLDivLossOptions::log_target, true);
  ModuleProbe(nn::SmoothL1Loss())
      .option("reduction", &nn::SmoothL1LossOptions::reduction, torch::kSum)
      .option("beta", &nn::SmoothL1LossOptions::beta, 0.5);
  ModuleProbe(nn::HuberLoss())
      .option("reduction", &nn::HuberLossOptions::reduction, torch::kSum)
      .option("delta", &nn::HuberLossOptions::delta, 0.5);
  ModuleProbe(nn::CTCLoss())
      .option("blank", &nn::CTCLossOptions::blank, 1)
      .option("reduction", &nn::CTCLossOptions::reduction, torch::kSum)
      .option("zero_infinity", &nn::CTCLossOptions::zero_infinity, true);
  ModuleProbe(nn::PoissonNLLLoss())
      .option("log_input", &nn::PoissonNLLLossOptions::log_input, false)
      .option("full", &nn::PoissonNLLLossOptions::full, true)
      .option("eps", &nn::PoissonNLLLossOptions::eps, 0.1)
      .option("reduction", &nn::PoissonNLLLossOptions::reduction, torch::kSum);
}

TEST(ModuleOptionLossesTest, LossesOfClasses) {
  ModuleProbe(nn::MultiMarginLoss())
      .option("p", &nn::MultiMarginLossOptions::p, 2)
      .option("margin", &nn::MultiMarginLossOptions::margin, 0.5)
      .option("weight", &nn::MultiMarginLossOptions::weight, other_loss())
      .option("reduction", &nn::MultiMarginLossOptions::reduction, torch::kSum);
  ModuleProbe(nn::NLLLoss())
      .option("weight", &nn::NLLLossOptions::weight, other_loss())
      .option("ignore_index", &nn::NLLLossOptions::ignore_index, 0)
      .option("reduction", &nn::NLLLossOptions::reduction, torch::kSum)
      .member("weight", &nn::NLLLossImpl::weight, other_loss());
  ModuleProbe(nn::CrossEntropyLoss())
      .option("weight", &nn::CrossEntropyLossOptions::weight, other_loss())
      .option("ignore_index", &nn::CrossEntropyLossOptions::ignore_index, 0)
      .option("reduction", &nn::CrossEntropyLossOptions::reduction, torch::kSum)
      .option("label_smoothing", &nn::CrossEntropyLossOptions::label_smoothing, 0.1)
      .member("weight", &nn::CrossEntropyLossImpl::weight, other_loss());
  ModuleProbe(nn::BCEWithLogitsLoss())
      .option("weight", &nn::BCEWithLogitsLossOptions::weight, other_loss())
      .option("reduction", &nn::BCEWithLogitsLossOptions::reduction, torch::kSum)
      .option("pos_weight", &nn::BCEWithLogitsLossOptions::pos_weight, other_loss())
      .member("weight", &nn::BCEWithLogitsLossImpl::weight, other_loss())
      .member("pos_weight", &nn::BCEWithLogitsLossImpl::pos_weight, other_loss());
  using AdaptiveOptions = nn::AdaptiveLogSoftmaxWithLossOptions;
  using Adaptive = nn::AdaptiveLogSoftmaxWithLossImpl;
  ModuleProbe(nn::AdaptiveLogSoftmaxWithLoss(AdaptiveOptions(64, 6, {2, 4})))
      .option("in_features", &AdaptiveOptions::in_features, 32)
      .option("n_classes", &AdaptiveOptions::n_classes, 7)
      .option("cutoffs", &AdaptiveOptions::cutoffs, Sizes{2, 5})
      .option("div_value", &AdaptiveOptions::div_value, 2.0)
      .option("head_bias", &AdaptiveOptions::head_bias, true)
      .member("cutoffs", &Adaptive::cutoffs, Sizes{2, 5})
      .member("shortlist_size", &Adaptive::shortlist_size, std::int64_t{3})
      .member("n_clusters", &Adaptive::n_clusters, std::int64_t{3})
      .member("head_size", &Adaptive::head_size, std::int64_t{3})
      .member("head", &Adaptive::head, nn::Linear(2, 3))
      .member("tail", &Adaptive::tail, nn::ModuleList());
}

TEST(ModuleOptionLossesTest, Distances) {
  ModuleProbe(nn::CosineSimilarity())
      .option("dim", &nn::CosineSimilarityOptions::dim, 0)
      .option("eps", &nn::CosineSimilarityOptions::eps, 0.1);
  ModuleProbe(nn::PairwiseDistance())
      .option("p", &nn::PairwiseDistanceOptions::p, 1.0)
      .option("eps", &nn::PairwiseDistanceOptions::eps, 0.1)
      .option("keepdim", &nn::PairwiseDistanceOptions::keepdim, true);
  ModuleProbe(nn::TripletMarginLoss())
      .option("margin", &nn::TripletMarginLossOptions::margin, 0.5)
      .option("p", &nn::TripletMarginLossOptions::p, 1.0)
      .option("eps", &nn::TripletMarginLossOptions::eps, 0.1)
      .option("swap", &nn::TripletMarginLossOptions::swap, true)
      .option("reduction", &nn::TripletMarginLossOptions::reduction, torch::kSum);
  using Options = nn::TripletMarginWithDistanceLossOptions;
  ModuleProbe(nn::TripletMarginWithDistanceLoss())
      .option("distance_function", &Options::distance_function,
              [](const at::Tensor& a, const at::Tensor& b) { return a - b; })
      .option("margin", &Options::margin, 0.5)
      .option("swap", &Options::swap, true)
      .option("reduction", &Options::reduction, torch::kSum);
}

}  // namespace
}  // namespace steptape::live
