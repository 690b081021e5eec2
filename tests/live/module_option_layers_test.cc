#include <ATen/ATen.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/fold.h>
#include <torch/nn/modules/instancenorm.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/modules/padding.h>
#include <torch/nn/modules/pixelshuffle.h>
#include <torch/nn/modules/pooling.h>
#include <torch/nn/modules/upsampling.h>

#include "module_options_probe.h"

namespace steptape::live {
namespace {

namespace nn = torch::nn;
using Sizes = std::vector<std::int64_t>;

at::Tensor other_layer() { return at::ones({1}); }

template <typename Module>
void probe_inplace() {
  ModuleProbe<Module>(Module()).option("inplace", &OptionsOf<Module>::inplace, true);
}

template <typename Module>
void probe_dim() {
  ModuleProbe<Module>(Module(1)).option("dim", &OptionsOf<Module>::dim, 0);
}

TEST(ModuleOptionLayersTest, Activations) {
  ModuleProbe(nn::ELU())
      .option("alpha", &nn::ELUOptions::alpha, 2.0)
      .option("inplace", &nn::ELUOptions::inplace, true);
  ModuleProbe(nn::CELU())
      .option("alpha", &nn::CELUOptions::alpha, 2.0)
      .option("inplace", &nn::CELUOptions::inplace, true);
  probe_inplace<nn::SELU>();
  probe_inplace<nn::ReLU>();
  probe_inplace<nn::ReLU6>();
  ModuleProbe(nn::GELU()).option("approximate", &nn::GELUOptions::approximate, "tanh");
  ModuleProbe(nn::GLU()).option("dim", &nn::GLUOptions::dim, 0);
  ModuleProbe(nn::Hardtanh())
      .option("min_val", &nn::HardtanhOptions::min_val, -2.0)
      .option("max_val", &nn::HardtanhOptions::max_val, 2.0)
      .option("inplace", &nn::HardtanhOptions::inplace, true);
  ModuleProbe(nn::LeakyReLU())
      .option("negative_slope", &nn::LeakyReLUOptions::negative_slope, 0.1)
      .option("inplace", &nn::LeakyReLUOptions::inplace, true);
  ModuleProbe(nn::RReLU())
      .option("lower", &nn::RReLUOptions::lower, 0.2)
      .option("upper", &nn::RReLUOptions::upper, 0.3)
      .option("inplace", &nn::RReLUOptions::inplace, true);
  ModuleProbe(nn::PReLU())
      .option("num_parameters", &nn::PReLUOptions::num_parameters, 2)
      .option("init", &nn::PReLUOptions::init, 0.5)
      .member("weight", &nn::PReLUImpl::weight, other_layer());
}

TEST(ModuleOptionLayersTest, ActivationsWithThresholds) {
  ModuleProbe(nn::Hardshrink()).option("lambda", &nn::HardshrinkOptions::lambda, 0.1);
  ModuleProbe(nn::Softshrink()).option("lambda", &nn::SoftshrinkOptions::lambda, 0.1);
  ModuleProbe(nn::Softplus())
      .option("beta", &nn::SoftplusOptions::beta, 2.0)
      .option("threshold", &nn::SoftplusOptions::threshold, 10.0);
  ModuleProbe(nn::Threshold(0.5, 1.0))
      .option("threshold", &nn::ThresholdOptions::threshold, 0.1)
      .option("value", &nn::ThresholdOptions::value, 2.0)
      .option("inplace", &nn::ThresholdOptions::inplace, true);
  probe_dim<nn::Softmax>();
  probe_dim<nn::Softmin>();
  probe_dim<nn::LogSoftmax>();
}

template <typename Module>
void probe_dropout() {
  ModuleProbe<Module>(Module(0.5))
      .option("p", &nn::DropoutOptions::p, 0.1)
      .option("inplace", &nn::DropoutOptions::inplace, true);
}

TEST(ModuleOptionLayersTest, Dropouts) {
  probe_dropout<nn::Dropout>();
  probe_dropout<nn::Dropout2d>();
  probe_dropout<nn::Dropout3d>();
  probe_dropout<nn::AlphaDropout>();
  probe_dropout<nn::FeatureAlphaDropout>();
}

TEST(ModuleOptionLayersTest, LinearAndShapes) {
  ModuleProbe(nn::Linear(2, 3))
      .option("in_features", &nn::LinearOptions::in_features, 4)
      .option("out_features", &nn::LinearOptions::out_features, 4)
      .option("bias", &nn::LinearOptions::bias, false)
      .member("weight", &nn::LinearImpl::weight, other_layer())
      .member("bias", &nn::LinearImpl::bias, other_layer());
  ModuleProbe(nn::Bilinear(2, 3, 4))
      .option("in1_features", &nn::BilinearOptions::in1_features, 5)
      .option("in2_features", &nn::BilinearOptions::in2_features, 5)
      .option("out_features", &nn::BilinearOptions::out_features, 5)
      .option("bias", &nn::BilinearOptions::bias, false)
      .member("weight", &nn::BilinearImpl::weight, other_layer())
      .member("bias", &nn::BilinearImpl::bias, other_layer());
  ModuleProbe(nn::Flatten())
      .option("start_dim", &nn::FlattenOptions::start_dim, 0)
      .option("end_dim", &nn::FlattenOptions::end_dim, 2);
  ModuleProbe(nn::Unflatten(1, Sizes{2, 3}))
      .option("dim", &nn::UnflattenOptions::dim, 0)
      .option("sizes", &nn::UnflattenOptions::sizes, Sizes{3, 2})
      .option("dimname", &nn::UnflattenOptions::dimname, "features")
      .option("namedshape", &nn::UnflattenOptions::namedshape,
              nn::UnflattenOptions::namedshape_t{{"a", 2}});
  ModuleProbe(nn::PixelShuffle(2))
      .option("upscale_factor", &nn::PixelShuffleOptions::upscale_factor, 3);
  ModuleProbe(nn::PixelUnshuffle(2))
      .option("downscale_factor", &nn::PixelUnshuffleOptions::downscale_factor, 3);
  ModuleProbe(nn::Upsample())
      .option("size", &nn::UpsampleOptions::size, Sizes{2, 3})
      .option("scale_factor", &nn::UpsampleOptions::scale_factor, std::vector<double>{2.0})
      .option("mode", &nn::UpsampleOptions::mode, torch::kBilinear)
      .option("align_corners", &nn::UpsampleOptions::align_corners, true);
}

template <typename Module, std::size_t D>
void probe_convolution() {
  using Options = nn::detail::ConvNdOptions<D>;
  using Impl = typename Module::ContainedType;
  using Padding = typename Options::padding_t;
  Module module(4, 4, 3);
  ModuleProbe<Module>(module)
      .option("in_channels", &Options::in_channels, 2)
      .option("out_channels", &Options::out_channels, 2)
      .option("kernel_size", &Options::kernel_size, 5)
      .option("stride", &Options::stride, 2)
      .option("padding", static_cast<Padding& (Options::*)() noexcept>(&Options::padding),
              torch::kSame)
      .option("dilation", &Options::dilation, 2)
      .option("transposed", &Options::transposed, !module->options.transposed())
      .option("output_padding", &Options::output_padding, 1)
      .option("groups", &Options::groups, 2)
      .option("bias", &Options::bias, false)
      .option("padding_mode", &Options::padding_mode, torch::kCircular)
      .member("weight", &Impl::weight, other_layer())
      .member("bias", &Impl::bias, other_layer());
}

TEST(ModuleOptionLayersTest, Convolutions) {
  probe_convolution<nn::Conv1d, 1>();
  probe_convolution<nn::Conv2d, 2>();
  probe_convolution<nn::Conv3d, 3>();
  probe_convolution<nn::ConvTranspose1d, 1>();
  probe_convolution<nn::ConvTranspose2d, 2>();
  probe_convolution<nn::ConvTranspose3d, 3>();
}

TEST(ModuleOptionLayersTest, Folds) {
  ModuleProbe(nn::Fold(4, 2))
      .option("output_size", &nn::FoldOptions::output_size, 6)
      .option("kernel_size", &nn::FoldOptions::kernel_size, 3)
      .option("dilation", &nn::FoldOptions::dilation, 2)
      .option("padding", &nn::FoldOptions::padding, 1)
      .option("stride", &nn::FoldOptions::stride, 2);
  ModuleProbe(nn::Unfold(2))
      .option("kernel_size", &nn::UnfoldOptions::kernel_size, 3)
      .option("dilation", &nn::UnfoldOptions::dilation, 2)
      .option("padding", &nn::UnfoldOptions::padding, 1)
      .option("stride", &nn::UnfoldOptions::stride, 2);
}

TEST(ModuleOptionLayersTest, Embeddings) {
  ModuleProbe(nn::Embedding(5, 3))
      .option("num_embeddings", &nn::EmbeddingOptions::num_embeddings, 6)
      .option("embedding_dim", &nn::EmbeddingOptions::embedding_dim, 4)
      .option("padding_idx", &nn::EmbeddingOptions::padding_idx, 1)
      .option("max_norm", &nn::EmbeddingOptions::max_norm, 1.0)
      .option("norm_type", &nn::EmbeddingOptions::norm_type, 1.0)
      .option("scale_grad_by_freq", &nn::EmbeddingOptions::scale_grad_by_freq, true)
      .option("sparse", &nn::EmbeddingOptions::sparse, true)
      .option("_weight", &nn::EmbeddingOptions::_weight, other_layer())
      .member("weight", &nn::EmbeddingImpl::weight, other_layer());
  ModuleProbe(nn::EmbeddingBag(5, 3))
      .option("num_embeddings", &nn::EmbeddingBagOptions::num_embeddings, 6)
      .option("embedding_dim", &nn::EmbeddingBagOptions::embedding_dim, 4)
      .option("max_norm", &nn::EmbeddingBagOptions::max_norm, 1.0)
      .option("norm_type", &nn::EmbeddingBagOptions::norm_type, 1.0)
      .option("scale_grad_by_freq", &nn::EmbeddingBagOptions::scale_grad_by_freq, true)
      .option("mode", &nn::EmbeddingBagOptions::mode, torch::kSum)
      .option("sparse", &nn::EmbeddingBagOptions::sparse, true)
      .option("_weight", &nn::EmbeddingBagOptions::_weight, other_layer())
      .option("include_last_offset", &nn::EmbeddingBagOptions::include_last_offset, true)
      .option("padding_idx", &nn::EmbeddingBagOptions::padding_idx, 1)
      .member("weight", &nn::EmbeddingBagImpl::weight, other_layer());
}

template <typename Module>
void probe_norm() {
  using Options = OptionsOf<Module>;
  using Impl = typename Module::ContainedType;
  const Options options(3);
  ModuleProbe<Module>(Module(options))
      .option("num_features", &Options::num_features, 4)
      .option("eps", &Options::eps, 0.1)
      .option("momentum", &Options::momentum, 0.5)
      .option("affine", &Options::affine, !options.affine())
      .option("track_running_stats", &Options::track_running_stats, !options.track_running_stats())
      .member("weight", &Impl::weight, other_layer())
      .member("bias", &Impl::bias, other_layer())
      .member("running_mean", &Impl::running_mean, other_layer())
      .member("running_var", &Impl::running_var, other_layer())
      .member("num_batches_tracked", &Impl::num_batches_tracked, other_layer());
}

TEST(ModuleOptionLayersTest, BatchAndInstanceNorms) {
  probe_norm<nn::BatchNorm1d>();
  probe_norm<nn::BatchNorm2d>();
  probe_norm<nn::BatchNorm3d>();
  probe_norm<nn::InstanceNorm1d>();
  probe_norm<nn::InstanceNorm2d>();
  probe_norm<nn::InstanceNorm3d>();
}

TEST(ModuleOptionLayersTest, OtherNorms) {
  ModuleProbe(nn::LayerNorm(nn::LayerNormOptions({2, 3})))
      .option("normalized_shape", &nn::LayerNormOptions::normalized_shape, Sizes{3, 2})
      .option("eps", &nn::LayerNormOptions::eps, 0.1)
      .option("elementwise_affine", &nn::LayerNormOptions::elementwise_affine, false)
      .member("weight", &nn::LayerNormImpl::weight, other_layer())
      .member("bias", &nn::LayerNormImpl::bias, other_layer());
  ModuleProbe(nn::GroupNorm(2, 4))
      .option("num_groups", &nn::GroupNormOptions::num_groups, 4)
      .option("num_channels", &nn::GroupNormOptions::num_channels, 8)
      .option("eps", &nn::GroupNormOptions::eps, 0.1)
      .option("affine", &nn::GroupNormOptions::affine, false)
      .member("weight", &nn::GroupNormImpl::weight, other_layer())
      .member("bias", &nn::GroupNormImpl::bias, other_layer());
  ModuleProbe(nn::LocalResponseNorm(2))
      .option("size", &nn::LocalResponseNormOptions::size, 3)
      .option("alpha", &nn::LocalResponseNormOptions::alpha, 0.1)
      .option("beta", &nn::LocalResponseNormOptions::beta, 0.5)
      .option("k", &nn::LocalResponseNormOptions::k, 2.0);
  ModuleProbe(nn::CrossMapLRN2d(2))
      .option("size", &nn::CrossMapLRN2dOptions::size, 3)
      .option("alpha", &nn::CrossMapLRN2dOptions::alpha, 0.1)
      .option("beta", &nn::CrossMapLRN2dOptions::beta, 0.5)
      .option("k", &nn::CrossMapLRN2dOptions::k, 2);
}

template <typename Module>
void probe_padding() {
  ModuleProbe<Module>(Module(1)).option("padding", &OptionsOf<Module>::padding, 2);
}

template <typename Module>
void probe_constant_padding() {
  ModuleProbe<Module>(Module(1, 0.5))
      .option("padding", &OptionsOf<Module>::padding, 2)
      .option("value", &OptionsOf<Module>::value, 1.0);
}

TEST(ModuleOptionLayersTest, Paddings) {
  probe_padding<nn::ReflectionPad1d>();
  probe_padding<nn::ReflectionPad2d>();
  probe_padding<nn::ReflectionPad3d>();
  probe_padding<nn::ReplicationPad1d>();
  probe_padding<nn::ReplicationPad2d>();
  probe_padding<nn::ReplicationPad3d>();
  probe_padding<nn::ZeroPad1d>();
  probe_padding<nn::ZeroPad2d>();
  probe_padding<nn::ZeroPad3d>();
  probe_constant_padding<nn::ConstantPad1d>();
  probe_constant_padding<nn::ConstantPad2d>();
  probe_constant_padding<nn::ConstantPad3d>();
}

template <typename Average, typename Max, typename Unpool, typename Power>
void probe_pools() {
  ModuleProbe<Average>(Average(2))
      .option("kernel_size", &OptionsOf<Average>::kernel_size, 3)
      .option("stride", &OptionsOf<Average>::stride, 3)
      .option("padding", &OptionsOf<Average>::padding, 1)
      .option("ceil_mode", &OptionsOf<Average>::ceil_mode, true)
      .option("count_include_pad", &OptionsOf<Average>::count_include_pad, false)
      .option("divisor_override", &OptionsOf<Average>::divisor_override, 3);
  ModuleProbe<Max>(Max(2))
      .option("kernel_size", &OptionsOf<Max>::kernel_size, 3)
      .option("stride", &OptionsOf<Max>::stride, 3)
      .option("padding", &OptionsOf<Max>::padding, 1)
      .option("dilation", &OptionsOf<Max>::dilation, 2)
      .option("ceil_mode", &OptionsOf<Max>::ceil_mode, true);
  ModuleProbe<Unpool>(Unpool(2))
      .option("kernel_size", &OptionsOf<Unpool>::kernel_size, 3)
      .option("stride", &OptionsOf<Unpool>::stride, 3)
      .option("padding", &OptionsOf<Unpool>::padding, 1);
  ModuleProbe<Power>(Power(2.0, 2))
      .option("norm_type", &OptionsOf<Power>::norm_type, 1.0)
      .option("kernel_size", &OptionsOf<Power>::kernel_size, 3)
      .option("stride", &OptionsOf<Power>::stride, 3)
      .option("ceil_mode", &OptionsOf<Power>::ceil_mode, true);
}

template <typename Module>
void probe_adaptive_pool() {
  ModuleProbe<Module>(Module(2)).option("output_size", &OptionsOf<Module>::output_size, 3);
}

template <typename Module, std::size_t D>
void probe_fractional_pool() {
  using Options = OptionsOf<Module>;
  using Ratio = torch::ExpandingArray<D, double>;
  ModuleProbe<Module>(Module(Options(2).output_size(3)))
      .option("kernel_size", &Options::kernel_size, 3)
      .option("output_size", &Options::output_size, std::nullopt)
      .option("output_ratio", &Options::output_ratio, Ratio(0.5))
      .option("_random_samples", &Options::_random_samples, other_layer())
      .member("_random_samples", &Module::ContainedType::_random_samples, other_layer());
}

TEST(ModuleOptionLayersTest, Pools) {
  probe_pools<nn::AvgPool1d, nn::MaxPool1d, nn::MaxUnpool1d, nn::LPPool1d>();
  probe_pools<nn::AvgPool2d, nn::MaxPool2d, nn::MaxUnpool2d, nn::LPPool2d>();
  probe_pools<nn::AvgPool3d, nn::MaxPool3d, nn::MaxUnpool3d, nn::LPPool3d>();
  probe_adaptive_pool<nn::AdaptiveAvgPool1d>();
  probe_adaptive_pool<nn::AdaptiveAvgPool2d>();
  probe_adaptive_pool<nn::AdaptiveAvgPool3d>();
  probe_adaptive_pool<nn::AdaptiveMaxPool1d>();
  probe_adaptive_pool<nn::AdaptiveMaxPool2d>();
  probe_adaptive_pool<nn::AdaptiveMaxPool3d>();
  probe_fractional_pool<nn::FractionalMaxPool2d, 2>();
  probe_fractional_pool<nn::FractionalMaxPool3d, 3>();
}

}  // namespace
}  // namespace steptape::live
