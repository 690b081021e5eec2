#pragma once

#include <string>

#include "live/option_value.h"

/// Every name that an option, or another public member, of LibTorch's module classes has: a class
/// has those that compile for it. `add(name, object)` takes each.
namespace steptape::live {

// A member can only be asked for by a name that the source holds: one `if constexpr` for each.
#define STEPTAPE_PARENS ()
#define STEPTAPE_EXPAND(...) STEPTAPE_EXPAND1(STEPTAPE_EXPAND1(STEPTAPE_EXPAND1(__VA_ARGS__)))
#define STEPTAPE_EXPAND1(...) STEPTAPE_EXPAND2(STEPTAPE_EXPAND2(STEPTAPE_EXPAND2(__VA_ARGS__)))
#define STEPTAPE_EXPAND2(...) STEPTAPE_EXPAND3(STEPTAPE_EXPAND3(STEPTAPE_EXPAND3(__VA_ARGS__)))
#define STEPTAPE_EXPAND3(...) STEPTAPE_EXPAND4(STEPTAPE_EXPAND4(STEPTAPE_EXPAND4(__VA_ARGS__)))
#define STEPTAPE_EXPAND4(...) __VA_ARGS__
#define STEPTAPE_EACH(one, first, ...) \
  one(first) __VA_OPT__(STEPTAPE_EACH_NEXT STEPTAPE_PARENS(one, __VA_ARGS__))
#define STEPTAPE_EACH_NEXT() STEPTAPE_EACH
#define STEPTAPE_ADD_OPTION(name) \
  if constexpr (requires { o.name(); }) add(#name, o.name());
#define STEPTAPE_ADD_MEMBER(name) \
  if constexpr (requires { m.name; }) add(#name, m.name);
/// Up to 81 of them.
#define STEPTAPE_ADD_OPTIONS(...) STEPTAPE_EXPAND(STEPTAPE_EACH(STEPTAPE_ADD_OPTION, __VA_ARGS__))
#define STEPTAPE_ADD_MEMBERS(...) STEPTAPE_EXPAND(STEPTAPE_EACH(STEPTAPE_ADD_MEMBER, __VA_ARGS__))

/// How many there are of something: most follow from the shapes of parameters.
template <typename Add, typename Options>
void list_sizes(const Add& add, const Options& o) {
  STEPTAPE_ADD_OPTIONS(num_features, num_parameters, num_embeddings, embedding_dim, embed_dim,
                       num_heads, kdim, vdim, in_features, out_features, in1_features, in2_features,
                       n_classes, num_groups, num_channels, in_channels, out_channels, groups,
                       input_size, hidden_size, num_layers, proj_size, num_chunks, d_model, nhead,
                       num_encoder_layers, num_decoder_layers, dim_feedforward, upscale_factor,
                       downscale_factor, cutoffs, normalized_shape)
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
  STEPTAPE_ADD_OPTIONS(kernel_size, stride, padding, dilation, output_padding, output_size,
                       output_ratio, divisor_override, size, scale_factor, sizes, dimname,
                       namedshape, start_dim, end_dim)
}

template <typename Add, typename Options>
void list_numbers(const Add& add, const Options& o) {
  STEPTAPE_ADD_OPTIONS(alpha, beta, k, p, eps, momentum, margin, delta, blank, ignore_index,
                       label_smoothing, lambda, negative_slope, min_val, max_val, lower, upper,
                       init, threshold, value, dropout, norm_type, max_norm, padding_idx, div_value)
}

template <typename Add, typename Options>
void list_switches(const Add& add, const Options& o) {
  STEPTAPE_ADD_OPTIONS(inplace, bias, affine, elementwise_affine, track_running_stats, add_bias_kv,
                       add_zero_attn, transposed, ceil_mode, count_include_pad, align_corners,
                       scale_grad_by_freq, sparse, include_last_offset, batch_first, bidirectional,
                       keepdim, head_bias, log_target, log_input, full, swap, zero_infinity)
}

template <typename Add, typename Options>
void list_words(const Add& add, const Options& o) {
  STEPTAPE_ADD_OPTIONS(reduction, mode, padding_mode, nonlinearity, approximate, activation)
}

/// Tensors, modules and functions.
template <typename Add, typename Options>
void list_objects(const Add& add, const Options& o) {
  STEPTAPE_ADD_OPTIONS(weight, pos_weight, _weight, _random_samples, distance_function,
                       encoder_layer, decoder_layer, custom_encoder, custom_decoder, norm)
}

template <typename Add, typename Module>
void list_tensors(const Add& add, const Module& m) {
  STEPTAPE_ADD_MEMBERS(weight, bias, pos_weight, running_mean, running_var, num_batches_tracked,
                       _random_samples, weight_ih, weight_hh, bias_ih, bias_hh, in_proj_weight,
                       in_proj_bias, q_proj_weight, k_proj_weight, v_proj_weight, bias_k, bias_v)
}

template <typename Add, typename Module>
void list_modules(const Add& add, const Module& m) {
  STEPTAPE_ADD_MEMBERS(out_proj, self_attn, multihead_attn, linear1, linear2, dropout, dropout1,
                       dropout2, dropout3, norm, norm1, norm2, norm3, layers, encoder, decoder,
                       head, tail)
}

/// What constructors make of the options.
template <typename Add, typename Module>
void list_derived(const Add& add, const Module& m) {
  STEPTAPE_ADD_MEMBERS(_qkv_same_embed_dim, head_dim, cutoffs, shortlist_size, n_clusters,
                       head_size)
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

#undef STEPTAPE_ADD_MEMBERS
#undef STEPTAPE_ADD_OPTIONS
#undef STEPTAPE_ADD_MEMBER
#undef STEPTAPE_ADD_OPTION
#undef STEPTAPE_EACH_NEXT
#undef STEPTAPE_EACH
#undef STEPTAPE_EXPAND4
#undef STEPTAPE_EXPAND3
#undef STEPTAPE_EXPAND2
#undef STEPTAPE_EXPAND1
#undef STEPTAPE_EXPAND
#undef STEPTAPE_PARENS

}  // namespace steptape::live
