#pragma once

#include <string>

#include "live/option_value.h"

/// Every name that an option, or another public member, of LibTorch's module classes has: a class
/// has those that compile for it. `add(name, object)` takes each.
namespace steptape::live {

/// How many there are of something: most follow from the shapes of parameters.
template <typename Add, typename Options>
void list_sizes(const Add& add, const Options& o) {
  if constexpr (requires { o.num_features(); }) add("num_features", o.num_features());
  if constexpr (requires { o.num_parameters(); }) add("num_parameters", o.num_parameters());
  if constexpr (requires { o.num_embeddings(); }) add("num_embeddings", o.num_embeddings());
  if constexpr (requires { o.embedding_dim(); }) add("embedding_dim", o.embedding_dim());
  if constexpr (requires { o.embed_dim(); }) add("embed_dim", o.embed_dim());
  if constexpr (requires { o.num_heads(); }) add("num_heads", o.num_heads());
  if constexpr (requires { o.kdim(); }) add("kdim", o.kdim());
  if constexpr (requires { o.vdim(); }) add("vdim", o.vdim());
  if constexpr (requires { o.in_features(); }) add("in_features", o.in_features());
  if constexpr (requires { o.out_features(); }) add("out_features", o.out_features());
  if constexpr (requires { o.in1_features(); }) add("in1_features", o.in1_features());
  if constexpr (requires { o.in2_features(); }) add("in2_features", o.in2_features());
  if constexpr (requires { o.n_classes(); }) add("n_classes", o.n_classes());
  if constexpr (requires { o.num_groups(); }) add("num_groups", o.num_groups());
  if constexpr (requires { o.num_channels(); }) add("num_channels", o.num_channels());
  if constexpr (requires { o.in_channels(); }) add("in_channels", o.in_channels());
  if constexpr (requires { o.out_channels(); }) add("out_channels", o.out_channels());
  if constexpr (requires { o.groups(); }) add("groups", o.groups());
  if constexpr (requires { o.input_size(); }) add("input_size", o.input_size());
  if constexpr (requires { o.hidden_size(); }) add("hidden_size", o.hidden_size());
  if constexpr (requires { o.num_layers(); }) add("num_layers", o.num_layers());
  if constexpr (requires { o.proj_size(); }) add("proj_size", o.proj_size());
  if constexpr (requires { o.num_chunks(); }) add("num_chunks", o.num_chunks());
  if constexpr (requires { o.d_model(); }) add("d_model", o.d_model());
  if constexpr (requires { o.nhead(); }) add("nhead", o.nhead());
  if constexpr (requires { o.num_encoder_layers(); })
    add("num_encoder_layers", o.num_encoder_layers());
  if constexpr (requires { o.num_decoder_layers(); })
    add("num_decoder_layers", o.num_decoder_layers());
  if constexpr (requires { o.dim_feedforward(); }) add("dim_feedforward", o.dim_feedforward());
  if constexpr (requires { o.upscale_factor(); }) add("upscale_factor", o.upscale_factor());
  if constexpr (requires { o.downscale_factor(); }) add("downscale_factor", o.downscale_factor());
  if constexpr (requires { o.cutoffs(); }) add("cutoffs", o.cutoffs());
  if constexpr (requires { o.normalized_shape(); }) add("normalized_shape", o.normalized_shape());
}

/// Dimensions, windows and shapes.
template <typename Add, typename Options>
void list_windows(const Add& add, const Options& o) {
  if constexpr (requires { o.namedshape(); }) {
    // A named dimension leaves the number of it uninitialized.
    if (o.namedshape().empty()) add("dim", o.dim());
  } else if constexpr (requires { o.dim(); }) {
    add("dim", o.dim());
  }
  if constexpr (requires { o.kernel_size(); }) add("kernel_size", o.kernel_size());
  if constexpr (requires { o.stride(); }) add("stride", o.stride());
  if constexpr (requires { o.padding(); }) add("padding", o.padding());
  if constexpr (requires { o.dilation(); }) add("dilation", o.dilation());
  if constexpr (requires { o.output_padding(); }) add("output_padding", o.output_padding());
  if constexpr (requires { o.output_size(); }) add("output_size", o.output_size());
  if constexpr (requires { o.output_ratio(); }) add("output_ratio", o.output_ratio());
  if constexpr (requires { o.divisor_override(); }) add("divisor_override", o.divisor_override());
  if constexpr (requires { o.size(); }) add("size", o.size());
  if constexpr (requires { o.scale_factor(); }) add("scale_factor", o.scale_factor());
  if constexpr (requires { o.sizes(); }) add("sizes", o.sizes());
  if constexpr (requires { o.dimname(); }) add("dimname", o.dimname());
  if constexpr (requires { o.namedshape(); }) add("namedshape", o.namedshape());
  if constexpr (requires { o.start_dim(); }) add("start_dim", o.start_dim());
  if constexpr (requires { o.end_dim(); }) add("end_dim", o.end_dim());
}

template <typename Add, typename Options>
void list_numbers(const Add& add, const Options& o) {
  if constexpr (requires { o.alpha(); }) add("alpha", o.alpha());
  if constexpr (requires { o.beta(); }) add("beta", o.beta());
  if constexpr (requires { o.k(); }) add("k", o.k());
  if constexpr (requires { o.p(); }) add("p", o.p());
  if constexpr (requires { o.eps(); }) add("eps", o.eps());
  if constexpr (requires { o.momentum(); }) add("momentum", o.momentum());
  if constexpr (requires { o.margin(); }) add("margin", o.margin());
  if constexpr (requires { o.delta(); }) add("delta", o.delta());
  if constexpr (requires { o.blank(); }) add("blank", o.blank());
  if constexpr (requires { o.ignore_index(); }) add("ignore_index", o.ignore_index());
  if constexpr (requires { o.label_smoothing(); }) add("label_smoothing", o.label_smoothing());
  if constexpr (requires { o.lambda(); }) add("lambda", o.lambda());
  if constexpr (requires { o.negative_slope(); }) add("negative_slope", o.negative_slope());
  if constexpr (requires { o.min_val(); }) add("min_val", o.min_val());
  if constexpr (requires { o.max_val(); }) add("max_val", o.max_val());
  if constexpr (requires { o.lower(); }) add("lower", o.lower());
  if constexpr (requires { o.upper(); }) add("upper", o.upper());
  if constexpr (requires { o.init(); }) add("init", o.init());
  if constexpr (requires { o.threshold(); }) add("threshold", o.threshold());
  if constexpr (requires { o.value(); }) add("value", o.value());
  if constexpr (requires { o.dropout(); }) add("dropout", o.dropout());
  if constexpr (requires { o.norm_type(); }) add("norm_type", o.norm_type());
  if constexpr (requires { o.max_norm(); }) add("max_norm", o.max_norm());
  if constexpr (requires { o.padding_idx(); }) add("padding_idx", o.padding_idx());
  if constexpr (requires { o.div_value(); }) add("div_value", o.div_value());
}

template <typename Add, typename Options>
void list_switches(const Add& add, const Options& o) {
  if constexpr (requires { o.inplace(); }) add("inplace", o.inplace());
  if constexpr (requires { o.bias(); }) add("bias", o.bias());
  if constexpr (requires { o.affine(); }) add("affine", o.affine());
  if constexpr (requires { o.elementwise_affine(); })
    add("elementwise_affine", o.elementwise_affine());
  if constexpr (requires { o.track_running_stats(); })
    add("track_running_stats", o.track_running_stats());
  if constexpr (requires { o.add_bias_kv(); }) add("add_bias_kv", o.add_bias_kv());
  if constexpr (requires { o.add_zero_attn(); }) add("add_zero_attn", o.add_zero_attn());
  if constexpr (requires { o.transposed(); }) add("transposed", o.transposed());
  if constexpr (requires { o.ceil_mode(); }) add("ceil_mode", o.ceil_mode());
  if constexpr (requires { o.count_include_pad(); })
    add("count_include_pad", o.count_include_pad());
  if constexpr (requires { o.align_corners(); }) add("align_corners", o.align_corners());
  if constexpr (requires { o.scale_grad_by_freq(); })
    add("scale_grad_by_freq", o.scale_grad_by_freq());
  if constexpr (requires { o.sparse(); }) add("sparse", o.sparse());
  if constexpr (requires { o.include_last_offset(); })
    add("include_last_offset", o.include_last_offset());
  if constexpr (requires { o.batch_first(); }) add("batch_first", o.batch_first());
  if constexpr (requires { o.bidirectional(); }) add("bidirectional", o.bidirectional());
  if constexpr (requires { o.keepdim(); }) add("keepdim", o.keepdim());
  if constexpr (requires { o.head_bias(); }) add("head_bias", o.head_bias());
  if constexpr (requires { o.log_target(); }) add("log_target", o.log_target());
  if constexpr (requires { o.log_input(); }) add("log_input", o.log_input());
  if constexpr (requires { o.full(); }) add("full", o.full());
  if constexpr (requires { o.swap(); }) add("swap", o.swap());
  if constexpr (requires { o.zero_infinity(); }) add("zero_infinity", o.zero_infinity());
}

template <typename Add, typename Options>
void list_words(const Add& add, const Options& o) {
  if constexpr (requires { o.reduction(); }) add("reduction", o.reduction());
  if constexpr (requires { o.mode(); }) add("mode", o.mode());
  if constexpr (requires { o.padding_mode(); }) add("padding_mode", o.padding_mode());
  if constexpr (requires { o.nonlinearity(); }) add("nonlinearity", o.nonlinearity());
  if constexpr (requires { o.approximate(); }) add("approximate", o.approximate());
  if constexpr (requires { o.activation(); }) add("activation", o.activation());
}

/// Tensors, modules and functions.
template <typename Add, typename Options>
void list_objects(const Add& add, const Options& o) {
  if constexpr (requires { o.weight(); }) add("weight", o.weight());
  if constexpr (requires { o.pos_weight(); }) add("pos_weight", o.pos_weight());
  if constexpr (requires { o._weight(); }) add("_weight", o._weight());
  if constexpr (requires { o._random_samples(); }) add("_random_samples", o._random_samples());
  if constexpr (requires { o.distance_function(); })
    add("distance_function", o.distance_function());
  if constexpr (requires { o.encoder_layer(); }) add("encoder_layer", o.encoder_layer());
  if constexpr (requires { o.decoder_layer(); }) add("decoder_layer", o.decoder_layer());
  if constexpr (requires { o.custom_encoder(); }) add("custom_encoder", o.custom_encoder());
  if constexpr (requires { o.custom_decoder(); }) add("custom_decoder", o.custom_decoder());
  if constexpr (requires { o.norm(); }) add("norm", o.norm());
}

template <typename Add, typename Module>
void list_tensors(const Add& add, const Module& m) {
  if constexpr (requires { m.weight; }) add("weight", m.weight);
  if constexpr (requires { m.bias; }) add("bias", m.bias);
  if constexpr (requires { m.pos_weight; }) add("pos_weight", m.pos_weight);
  if constexpr (requires { m.running_mean; }) add("running_mean", m.running_mean);
  if constexpr (requires { m.running_var; }) add("running_var", m.running_var);
  if constexpr (requires { m.num_batches_tracked; })
    add("num_batches_tracked", m.num_batches_tracked);
  if constexpr (requires { m._random_samples; }) add("_random_samples", m._random_samples);
  if constexpr (requires { m.weight_ih; }) add("weight_ih", m.weight_ih);
  if constexpr (requires { m.weight_hh; }) add("weight_hh", m.weight_hh);
  if constexpr (requires { m.bias_ih; }) add("bias_ih", m.bias_ih);
  if constexpr (requires { m.bias_hh; }) add("bias_hh", m.bias_hh);
  if constexpr (requires { m.in_proj_weight; }) add("in_proj_weight", m.in_proj_weight);
  if constexpr (requires { m.in_proj_bias; }) add("in_proj_bias", m.in_proj_bias);
  if constexpr (requires { m.q_proj_weight; }) add("q_proj_weight", m.q_proj_weight);
  if constexpr (requires { m.k_proj_weight; }) add("k_proj_weight", m.k_proj_weight);
  if constexpr (requires { m.v_proj_weight; }) add("v_proj_weight", m.v_proj_weight);
  if constexpr (requires { m.bias_k; }) add("bias_k", m.bias_k);
  if constexpr (requires { m.bias_v; }) add("bias_v", m.bias_v);
}

template <typename Add, typename Module>
void list_modules(const Add& add, const Module& m) {
  if constexpr (requires { m.out_proj; }) add("out_proj", m.out_proj);
  if constexpr (requires { m.self_attn; }) add("self_attn", m.self_attn);
  if constexpr (requires { m.multihead_attn; }) add("multihead_attn", m.multihead_attn);
  if constexpr (requires { m.linear1; }) add("linear1", m.linear1);
  if constexpr (requires { m.linear2; }) add("linear2", m.linear2);
  if constexpr (requires { m.dropout; }) add("dropout", m.dropout);
  if constexpr (requires { m.dropout1; }) add("dropout1", m.dropout1);
  if constexpr (requires { m.dropout2; }) add("dropout2", m.dropout2);
  if constexpr (requires { m.dropout3; }) add("dropout3", m.dropout3);
  if constexpr (requires { m.norm; }) add("norm", m.norm);
  if constexpr (requires { m.norm1; }) add("norm1", m.norm1);
  if constexpr (requires { m.norm2; }) add("norm2", m.norm2);
  if constexpr (requires { m.norm3; }) add("norm3", m.norm3);
  if constexpr (requires { m.layers; }) add("layers", m.layers);
  if constexpr (requires { m.encoder; }) add("encoder", m.encoder);
  if constexpr (requires { m.decoder; }) add("decoder", m.decoder);
  if constexpr (requires { m.head; }) add("head", m.head);
  if constexpr (requires { m.tail; }) add("tail", m.tail);
}

/// What constructors make of the options.
template <typename Add, typename Module>
void list_derived(const Add& add, const Module& m) {
  if constexpr (requires { m._qkv_same_embed_dim; })
    add("_qkv_same_embed_dim", m._qkv_same_embed_dim);
  if constexpr (requires { m.head_dim; }) add("head_dim", m.head_dim);
  if constexpr (requires { m.cutoffs; }) add("cutoffs", m.cutoffs);
  if constexpr (requires { m.shortlist_size; }) add("shortlist_size", m.shortlist_size);
  if constexpr (requires { m.n_clusters; }) add("n_clusters", m.n_clusters);
  if constexpr (requires { m.head_size; }) add("head_size", m.head_size);
}

/// Options of `of`, "options." or "options_base.".
template <typename Options>
void list_options(ModuleOptionList& list, const std::string& of, const Options& options) {
  const auto add = [&](const char* name, const auto& object) { list.option(of + name, object); };
  list_sizes(add, options);
  list_windows(add, options);
  list_numbers(add, options);
  list_switches(add, options);
  list_words(add, options);
  list_objects(add, options);
}

/// All that `module` has.
template <typename Module>
void list_all(ModuleOptionList& list, const Module& module) {
  if constexpr (requires { module.options; }) list_options(list, "options.", module.options);
  if constexpr (requires { module.options_base; }) {
    list_options(list, "options_base.", module.options_base);
  }
  const auto add = [&](const char* name, const auto& object) { list.member(name, object); };
  list_derived(add, module);
  list_tensors(add, module);
  list_modules(add, module);
}

}  // namespace steptape::live
