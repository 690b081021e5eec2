#include <ATen/ATen.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/rnn.h>
#include <torch/nn/modules/transformer.h>
#include <torch/nn/modules/transformercoder.h>
#include <torch/nn/modules/transformerlayer.h>

#include "module_options_probe.h"

namespace steptape::live {
namespace {

namespace nn = torch::nn;
using Sizes = std::vector<std::int64_t>;

at::Tensor other_sequence() { return at::ones({1}); }

template <typename Options, typename Module>
void probe_layers(ModuleProbe<Module>& probe) {
  probe.option("input_size", &Options::input_size, 5)
      .option("hidden_size", &Options::hidden_size, 5)
      .option("num_layers", &Options::num_layers, 2)
      .option("bias", &Options::bias, false)
      .option("batch_first", &Options::batch_first, true)
      .option("dropout", &Options::dropout, 0.5)
      .option("bidirectional", &Options::bidirectional, true);
}

template <typename Module>
void probe_recurrent(ModuleProbe<Module>& probe) {
  using Base = nn::detail::RNNOptionsBase;
  probe_layers<OptionsOf<Module>>(probe);
  probe_layers<Base>(probe);
  probe.option("mode", &Base::mode, torch::kRNN_RELU).option("proj_size", &Base::proj_size, 2);
}

TEST(ModuleOptionSequencesTest, Recurrent) {
  ModuleProbe rnn(nn::RNN(3, 4));
  probe_recurrent(rnn);
  rnn.option("nonlinearity", &nn::RNNOptions::nonlinearity, torch::kReLU);
  ModuleProbe lstm(nn::LSTM(3, 4));
  probe_recurrent(lstm);
  lstm.option("proj_size", &nn::LSTMOptions::proj_size, 2);
  ModuleProbe gru(nn::GRU(3, 4));
  probe_recurrent(gru);
}

template <typename Module>
void probe_cell(ModuleProbe<Module>& probe) {
  using Options = OptionsOf<Module>;
  using Base = nn::detail::RNNCellOptionsBase;
  using Impl = typename Module::ContainedType;
  probe.option("input_size", &Options::input_size, 5)
      .option("hidden_size", &Options::hidden_size, 5)
      .option("bias", &Options::bias, false)
      .option("input_size", &Base::input_size, 5)
      .option("hidden_size", &Base::hidden_size, 5)
      .option("bias", &Base::bias, false)
      .option("num_chunks", &Base::num_chunks, 7)
      .member("weight_ih", &Impl::weight_ih, other_sequence())
      .member("weight_hh", &Impl::weight_hh, other_sequence())
      .member("bias_ih", &Impl::bias_ih, other_sequence())
      .member("bias_hh", &Impl::bias_hh, other_sequence());
}

TEST(ModuleOptionSequencesTest, RecurrentCells) {
  ModuleProbe rnn(nn::RNNCell(3, 4));
  probe_cell(rnn);
  rnn.option("nonlinearity", &nn::RNNCellOptions::nonlinearity, torch::kReLU);
  ModuleProbe lstm(nn::LSTMCell(3, 4));
  probe_cell(lstm);
  ModuleProbe gru(nn::GRUCell(3, 4));
  probe_cell(gru);
}

TEST(ModuleOptionSequencesTest, Attention) {
  using Options = nn::MultiheadAttentionOptions;
  using Impl = nn::MultiheadAttentionImpl;
  ModuleProbe(nn::MultiheadAttention(4, 2))
      .option("embed_dim", &Options::embed_dim, 8)
      .option("num_heads", &Options::num_heads, 4)
      .option("dropout", &Options::dropout, 0.5)
      .option("bias", &Options::bias, false)
      .option("add_bias_kv", &Options::add_bias_kv, true)
      .option("add_zero_attn", &Options::add_zero_attn, true)
      .option("kdim", &Options::kdim, 2)
      .option("vdim", &Options::vdim, 2)
      .member("_qkv_same_embed_dim", &Impl::_qkv_same_embed_dim, false)
      .member("in_proj_weight", &Impl::in_proj_weight, other_sequence())
      .member("in_proj_bias", &Impl::in_proj_bias, other_sequence())
      .member("bias_k", &Impl::bias_k, other_sequence())
      .member("bias_v", &Impl::bias_v, other_sequence())
      .member("out_proj", &Impl::out_proj, nn::Linear(4, 4))
      .member("q_proj_weight", &Impl::q_proj_weight, other_sequence())
      .member("k_proj_weight", &Impl::k_proj_weight, other_sequence())
      .member("v_proj_weight", &Impl::v_proj_weight, other_sequence())
      .member("head_dim", &Impl::head_dim, std::int64_t{1});
}

template <typename Options, typename Module>
void probe_transformer_layer(ModuleProbe<Module>& probe) {
  using Impl = typename Module::ContainedType;
  probe.option("d_model", &Options::d_model, 8)
      .option("nhead", &Options::nhead, 4)
      .option("dim_feedforward", &Options::dim_feedforward, 6)
      .option("dropout", &Options::dropout, 0.5)
      .option("activation", &Options::activation, torch::kGELU)
      .member("self_attn", &Impl::self_attn, nn::MultiheadAttention(4, 2))
      .member("linear1", &Impl::linear1, nn::Linear(4, 4))
      .member("linear2", &Impl::linear2, nn::Linear(4, 4))
      .member("dropout", &Impl::dropout, nn::Dropout())
      .member("dropout1", &Impl::dropout1, nn::Dropout())
      .member("dropout2", &Impl::dropout2, nn::Dropout())
      .member("norm1", &Impl::norm1, nn::LayerNorm(Sizes{4}))
      .member("norm2", &Impl::norm2, nn::LayerNorm(Sizes{4}));
}

TEST(ModuleOptionSequencesTest, TransformerLayers) {
  ModuleProbe encoder(nn::TransformerEncoderLayer(4, 2));
  probe_transformer_layer<nn::TransformerEncoderLayerOptions>(encoder);
  ModuleProbe decoder(nn::TransformerDecoderLayer(4, 2));
  probe_transformer_layer<nn::TransformerDecoderLayerOptions>(decoder);
  using Impl = nn::TransformerDecoderLayerImpl;
  decoder.member("multihead_attn", &Impl::multihead_attn, nn::MultiheadAttention(4, 2))
      .member("dropout3", &Impl::dropout3, nn::Dropout())
      .member("norm3", &Impl::norm3, nn::LayerNorm(Sizes{4}));
}

TEST(ModuleOptionSequencesTest, Transformers) {
  const auto any = [] { return nn::AnyModule(nn::Linear(4, 4)); };
  const nn::TransformerEncoderLayer encoder_layer(4, 2);
  using EncoderOptions = nn::TransformerEncoderOptions;
  using Encoder = nn::TransformerEncoderImpl;
  ModuleProbe(nn::TransformerEncoder(encoder_layer, 1))
      .option("encoder_layer", &EncoderOptions::encoder_layer, nn::TransformerEncoderLayer(4, 2))
      .option("num_layers", &EncoderOptions::num_layers, 2)
      .option("norm", &EncoderOptions::norm, any())
      .member("layers", &Encoder::layers, nn::ModuleList())
      .member("norm", &Encoder::norm, any());
  const nn::TransformerDecoderLayer decoder_layer(4, 2);
  using DecoderOptions = nn::TransformerDecoderOptions;
  using Decoder = nn::TransformerDecoderImpl;
  ModuleProbe(nn::TransformerDecoder(decoder_layer, 1))
      .option("decoder_layer", &DecoderOptions::decoder_layer, nn::TransformerDecoderLayer(4, 2))
      .option("num_layers", &DecoderOptions::num_layers, 2)
      .option("norm", &DecoderOptions::norm, any())
      .member("layers", &Decoder::layers, nn::ModuleList())
      .member("norm", &Decoder::norm, any());
  using Options = nn::TransformerOptions;
  ModuleProbe(nn::Transformer(Options(4, 2, 1, 1)))
      .option("d_model", &Options::d_model, 8)
      .option("nhead", &Options::nhead, 4)
      .option("num_encoder_layers", &Options::num_encoder_layers, 2)
      .option("num_decoder_layers", &Options::num_decoder_layers, 2)
      .option("dim_feedforward", &Options::dim_feedforward, 6)
      .option("dropout", &Options::dropout, 0.5)
      .option("activation", &Options::activation, torch::kGELU)
      .option("custom_encoder", &Options::custom_encoder, any())
      .option("custom_decoder", &Options::custom_decoder, any())
      .member("encoder", &nn::TransformerImpl::encoder, any())
      .member("decoder", &nn::TransformerImpl::decoder, any());
}

}  // namespace
}  // namespace steptape::live
