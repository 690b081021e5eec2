#include "live/module_options.h"

#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/adaptive.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/distance.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/fold.h>
#include <torch/nn/modules/instancenorm.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/loss.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/modules/padding.h>
#include <torch/nn/modules/pixelshuffle.h>
#include <torch/nn/modules/pooling.h>
#include <torch/nn/modules/rnn.h>
#include <torch/nn/modules/transformer.h>
#include <torch/nn/modules/transformercoder.h>
#include <torch/nn/modules/transformerlayer.h>
#include <torch/nn/modules/upsampling.h>

#include <array>
#include <typeindex>
#include <typeinfo>
#include <unordered_map>

#include "live/module_option_names.h"

namespace steptape::live {
namespace {

namespace nn = torch::nn;

/// Lists what `module` has, if it is of a certain class or of one derived from it.
using List = void (*)(ModuleOptionList& list, const nn::Module& module);

struct ModuleClass {
  std::type_index type;
  List list;
};

template <typename Module>
void list_if(ModuleOptionList& list, const nn::Module& module) {
  if (const auto* known = dynamic_cast<const Module*>(&module)) list_all(list, *known);
}

template <typename... Modules>
std::array<ModuleClass, sizeof...(Modules)> classes() {
  return {{{typeid(Modules), &list_if<Modules>}...}};
}

/// Classes that have neither options nor public members are not among them.
const auto& known_classes() {
  static const auto known = classes<
      nn::ELUImpl, nn::SELUImpl, nn::HardshrinkImpl, nn::HardtanhImpl, nn::LeakyReLUImpl,
      nn::SoftmaxImpl, nn::SoftminImpl, nn::LogSoftmaxImpl, nn::PReLUImpl, nn::ReLUImpl,
      nn::ReLU6Impl, nn::RReLUImpl, nn::CELUImpl, nn::GLUImpl, nn::GELUImpl, nn::SoftplusImpl,
      nn::SoftshrinkImpl, nn::ThresholdImpl, nn::MultiheadAttentionImpl,
      nn::AdaptiveLogSoftmaxWithLossImpl, nn::BatchNorm1dImpl, nn::BatchNorm2dImpl,
      nn::BatchNorm3dImpl, nn::Conv1dImpl, nn::Conv2dImpl, nn::Conv3dImpl, nn::ConvTranspose1dImpl,
      nn::ConvTranspose2dImpl, nn::ConvTranspose3dImpl, nn::CosineSimilarityImpl,
      nn::PairwiseDistanceImpl, nn::DropoutImpl, nn::Dropout2dImpl, nn::Dropout3dImpl,
      nn::AlphaDropoutImpl, nn::FeatureAlphaDropoutImpl, nn::EmbeddingImpl, nn::EmbeddingBagImpl,
      nn::FoldImpl, nn::UnfoldImpl, nn::InstanceNorm1dImpl, nn::InstanceNorm2dImpl,
      nn::InstanceNorm3dImpl, nn::LinearImpl, nn::FlattenImpl, nn::UnflattenImpl, nn::BilinearImpl,
      nn::L1LossImpl, nn::KLDivLossImpl, nn::MSELossImpl, nn::BCELossImpl,
      nn::HingeEmbeddingLossImpl, nn::MultiMarginLossImpl, nn::CosineEmbeddingLossImpl,
      nn::SmoothL1LossImpl, nn::HuberLossImpl, nn::MultiLabelMarginLossImpl, nn::SoftMarginLossImpl,
      nn::MultiLabelSoftMarginLossImpl, nn::TripletMarginLossImpl,
      nn::TripletMarginWithDistanceLossImpl, nn::CTCLossImpl, nn::PoissonNLLLossImpl,
      nn::MarginRankingLossImpl, nn::NLLLossImpl, nn::CrossEntropyLossImpl,
      nn::BCEWithLogitsLossImpl, nn::LayerNormImpl, nn::LocalResponseNormImpl,
      nn::CrossMapLRN2dImpl, nn::GroupNormImpl, nn::ReflectionPad1dImpl, nn::ReflectionPad2dImpl,
      nn::ReflectionPad3dImpl, nn::ReplicationPad1dImpl, nn::ReplicationPad2dImpl,
      nn::ReplicationPad3dImpl, nn::ZeroPad1dImpl, nn::ZeroPad2dImpl, nn::ZeroPad3dImpl,
      nn::ConstantPad1dImpl, nn::ConstantPad2dImpl, nn::ConstantPad3dImpl, nn::PixelShuffleImpl,
      nn::PixelUnshuffleImpl, nn::AvgPool1dImpl, nn::AvgPool2dImpl, nn::AvgPool3dImpl,
      nn::MaxPool1dImpl, nn::MaxPool2dImpl, nn::MaxPool3dImpl, nn::AdaptiveMaxPool1dImpl,
      nn::AdaptiveMaxPool2dImpl, nn::AdaptiveMaxPool3dImpl, nn::AdaptiveAvgPool1dImpl,
      nn::AdaptiveAvgPool2dImpl, nn::AdaptiveAvgPool3dImpl, nn::MaxUnpool1dImpl,
      nn::MaxUnpool2dImpl, nn::MaxUnpool3dImpl, nn::FractionalMaxPool2dImpl,
      nn::FractionalMaxPool3dImpl, nn::LPPool1dImpl, nn::LPPool2dImpl, nn::LPPool3dImpl,
      nn::RNNImpl, nn::LSTMImpl, nn::GRUImpl, nn::RNNCellImpl, nn::LSTMCellImpl, nn::GRUCellImpl,
      nn::TransformerImpl, nn::TransformerEncoderImpl, nn::TransformerDecoderImpl,
      nn::TransformerEncoderLayerImpl, nn::TransformerDecoderLayerImpl, nn::UpsampleImpl>();
  return known;
}

List find(const std::type_info& type) {
  static const auto by_type = [] {
    std::unordered_map<std::type_index, List> lists;
    for (const ModuleClass& known : known_classes()) lists.emplace(known.type, known.list);
    return lists;
  }();
  const auto found = by_type.find(type);
  return found == by_type.end() ? nullptr : found->second;
}

}  // namespace

std::vector<ModuleOption> module_options(const nn::Module& module) {
  ModuleOptionList list;
  if (List list_known = find(typeid(module))) {
    list_known(list, module);
  } else {
    for (const ModuleClass& known : known_classes()) known.list(list, module);
  }
  return list.take();
}

std::vector<trace::NamedValue> option_values(const nn::Module& module) {
  std::vector<trace::NamedValue> values;
  for (const ModuleOption& option : module_options(module)) {
    if (option.kind != ModuleOptionKind::kOption) continue;
    values.push_back({option.name, option.read(option.object)});
  }
  return values;
}

}  // namespace steptape::live
