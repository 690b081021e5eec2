#include "live/module_options.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/loss.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/modules/pooling.h>
#include <torch/nn/modules/transformerlayer.h>
#include <torch/nn/modules/upsampling.h>

#include "module_options_probe.h"
#include "trace/text/text.h"

namespace steptape::live {
namespace {

namespace nn = torch::nn;
using testing::ElementsAre;
using testing::IsEmpty;

std::vector<std::string> names_of(const nn::Module& module) {
  std::vector<std::string> names;
  for (const ModuleOption& option : module_options(module)) names.push_back(option.name);
  return names;
}

/// The option proper, as the text form shows it.
std::string words(const nn::Module& module, const std::string& name) {
  for (const auto& [found, value] : option_values(module)) {
    if (found == "options." + name) return trace::print_value(value);
  }
  return "no such option";
}

struct ScaledImpl : nn::LinearImpl {
  using LinearImpl::LinearImpl;
  double scale = 1;
};

struct BareImpl : nn::Module {};

TEST(ModuleOptionsTest, PointIntoTheLiveModule) {
  nn::Dropout dropout(0.5);
  const auto options = module_options(*dropout);
  ASSERT_EQ(options.size(), 2);
  EXPECT_EQ(options[0].name, "options.p");
  EXPECT_EQ(options[0].object, &dropout->options.p());
  ASSERT_EQ(options[0].bytes.size(), 1);
  EXPECT_EQ(options[0].bytes[0].size(), sizeof(double));
  dropout->options.p(0.25);
  EXPECT_EQ(options[0].read(options[0].object), trace::Value{trace::Real{0.25}});
}

TEST(ModuleOptionsTest, MembersAreNoValuesOfARecording) {
  nn::Linear linear(2, 3);
  EXPECT_THAT(names_of(*linear), ElementsAre("options.in_features", "options.out_features",
                                             "options.bias", "weight", "bias"));
  EXPECT_THAT(option_values(*linear),
              ElementsAre(trace::NamedValue{"options.in_features", {std::int64_t{2}}},
                          trace::NamedValue{"options.out_features", {std::int64_t{3}}},
                          trace::NamedValue{"options.bias", {true}}));
}

TEST(ModuleOptionsTest, ADerivedClassHasThoseOfItsBase) {
  ScaledImpl scaled(2, 3);
  EXPECT_EQ(names_of(scaled), names_of(*nn::Linear(2, 3)));
  const KeptBytes kept(scaled);
  scaled.options.bias(false);
  EXPECT_THAT(kept.changed(), ElementsAre("options.bias"));
}

TEST(ModuleOptionsTest, OtherClassesHaveNone) {
  EXPECT_THAT(names_of(BareImpl()), IsEmpty());
  EXPECT_THAT(names_of(*nn::Identity()), IsEmpty());
}

TEST(ModuleOptionsTest, SaysWhatIsInAWindow) {
  const nn::Conv2d conv(nn::Conv2dOptions(1, 1, {3, 5}).padding({1, 2}));
  EXPECT_EQ(words(*conv, "kernel_size"), "[3, 5]");
  EXPECT_EQ(words(*conv, "padding"), "[1, 2]");
  EXPECT_EQ(words(*conv, "padding_mode"), "\"kZeros\"");
  const nn::Conv2d same(nn::Conv2dOptions(1, 1, 3).padding(torch::kSame));
  EXPECT_EQ(words(*same, "padding"), "\"kSame\"");
  const nn::AdaptiveAvgPool2d pool(nn::AdaptiveAvgPool2dOptions({std::nullopt, 7}));
  EXPECT_EQ(words(*pool, "output_size"), "{none, 7}");
}

TEST(ModuleOptionsTest, SaysWhatIsInAList) {
  EXPECT_EQ(words(*nn::LayerNorm(std::vector<std::int64_t>{2, 3}), "normalized_shape"), "[2, 3]");
  const nn::Unflatten unflatten("features", nn::UnflattenOptions::namedshape_t{{"a", 2}});
  EXPECT_EQ(words(*unflatten, "namedshape"), "{{\"a\", 2}}");
  const nn::Upsample upsample(nn::UpsampleOptions().scale_factor(std::vector<double>{2}));
  EXPECT_EQ(words(*upsample, "scale_factor"), "{0x1p+1 (2.0)}");
  EXPECT_EQ(words(*upsample, "size"), "none");
}

TEST(ModuleOptionsTest, SaysWhetherThereIsATensor) {
  EXPECT_EQ(words(*nn::BCELoss(), "weight"), "none");
  const nn::BCELoss weighted(nn::BCELossOptions().weight(at::ones({2})));
  EXPECT_EQ(words(*weighted, "weight"), "opaque(\"torch::Tensor\")");
}

TEST(ModuleOptionsTest, ANamedDimensionHasNoNumber) {
  const nn::Unflatten unflatten("features", nn::UnflattenOptions::namedshape_t{{"a", 2}});
  EXPECT_EQ(words(*unflatten, "dim"), "no such option");
}

TEST(ModuleOptionsTest, SeesAnElementThatChangesInPlace) {
  nn::LayerNorm norm(std::vector<std::int64_t>{2, 3});
  const KeptBytes kept(*norm);
  norm->options.normalized_shape()[1] = 4;
  EXPECT_THAT(kept.changed(), ElementsAre("options.normalized_shape"));
}

TEST(ModuleOptionsTest, SeesANameThatChangesInPlace) {
  const std::string long_name(100, 'a');
  for (const std::string& name : {std::string("a"), long_name}) {
    nn::Unflatten unflatten("features", nn::UnflattenOptions::namedshape_t{{name, 2}});
    const KeptBytes kept(*unflatten);
    unflatten->options.namedshape()[0].first.back() = 'b';
    EXPECT_THAT(kept.changed(), ElementsAre("options.namedshape"));
  }
}

TEST(ModuleOptionsTest, FollowsNoPointerOnceItsOwnerHasChanged) {
  nn::Upsample upsample(nn::UpsampleOptions().size(std::vector<std::int64_t>{2, 3}));
  const KeptBytes kept(*upsample);
  upsample->options.size(std::nullopt);
  EXPECT_THAT(kept.changed(), ElementsAre("options.size"));
  upsample->options.size(std::vector<std::int64_t>(100, 1));
  EXPECT_THAT(kept.changed(), ElementsAre("options.size"));
}

TEST(ModuleOptionsTest, SeesAnotherTensor) {
  nn::BCELoss loss(nn::BCELossOptions().weight(at::ones({2})));
  const KeptBytes kept(*loss);
  loss->options.weight().mul_(2);
  EXPECT_THAT(kept.changed(), IsEmpty());
  loss->options.weight(at::ones({2}));
  EXPECT_THAT(kept.changed(), ElementsAre("options.weight"));
}

TEST(ModuleOptionsTest, SeesAnotherFunction) {
  using Options = nn::TransformerEncoderLayerOptions;
  nn::TransformerEncoderLayer layer(
      Options(4, 2).activation([](const at::Tensor& t) { return t; }));
  EXPECT_EQ(words(*layer, "activation"), "opaque(\"std::function\")");
  const KeptBytes kept(*layer);
  layer->options.activation([](const at::Tensor& t) { return t.exp(); });
  EXPECT_THAT(kept.changed(), ElementsAre("options.activation"));
}

TEST(ModuleOptionsTest, AChangeTakenBackIsNone) {
  nn::Dropout dropout(0.5);
  const KeptBytes kept(*dropout);
  dropout->options.p(0.1);
  dropout->options.p(0.5);
  EXPECT_THAT(kept.changed(), IsEmpty());
}

}  // namespace
}  // namespace steptape::live
