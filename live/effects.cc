#include "live/effects.h"

#include <algorithm>
#include <array>
#include <cstddef>

namespace steptape::live {
namespace {

using enum ExceptionKind;

constexpr std::string_view kStatistics = "running_mean,running_var";
constexpr std::string_view kRunning = "updates its running statistics in training, unannotated";
constexpr std::string_view kShape = "answers from sizes, strides or flags";
constexpr std::string_view kCounts = "returns sequence lengths that follow from the sizes";
constexpr std::string_view kInteger = "raises for an integer zero divisor or negative exponent";
constexpr std::string_view kAll = "every process of the group issues it, in the same order";
constexpr std::string_view kZero = "ignores it then: NaN and infinities in it are not propagated";
constexpr std::string_view kPermutation = "puts a value to each index";
constexpr std::string_view kAlgebra = "checks shapes and dtypes, then only computes";

constexpr auto kTable = std::to_array<Exception>({
    {"aten::native_batch_norm aten::cudnn_batch_norm aten::miopen_batch_norm "
     "aten::_native_batch_norm_legit aten::batch_norm_update_stats "
     "aten::batch_norm_gather_stats aten::batch_norm_gather_stats_with_counts",
     kWrites, kStatistics, kRunning},
    {"aten::mkldnn_rnn_layer", kWrites, "workspace", "a workspace passed in is filled"},
    {"aten::mkldnn_rnn_layer_backward", kWrites, "workspace", "uses the workspace as scratch"},
    {"aten::_cudnn_rnn_backward", kWrites, "reserve", "uses the reserve as scratch"},
    {"c10d::barrier", kWrites, "none", "its tensor only tells the dispatcher of a device"},
    {"c10d::", kWrites, "", "collectives write the tensors they are given, asynchronously"},

    {"aten::_unsafe_view", kAlias, "", "a view whose schema hides it from autograd"},
    {"aten::_reshape_alias", kAlias, "", "a view by sizes and strides"},
    {"aten::unsafe_split", kAlias, "", "views whose schema hides them from autograd"},
    {"aten::unsafe_split_with_sizes", kAlias, "", "views whose schema hides them from autograd"},
    {"aten::lift_fresh", kAlias, "", "returns its argument as it is"},

    {"aten::_cudnn_rnn", kReturns, "weight_buf", "its backward is to have the weights"},

    {"aten::_cudnn_rnn", kDraws, "dropout", "cuDNN draws it, from bytes on the device"},

    {"aten::is_same_size aten::_has_compatible_shallow_copy_type "
     "aten::_debug_has_internal_overlap aten::size aten::stride aten::sym_size aten::sym_stride "
     "aten::sym_numel aten::sym_storage_offset aten::is_pinned aten::is_complex "
     "aten::is_floating_point aten::is_signed aten::is_conj aten::is_neg aten::is_inference "
     "aten::is_leaf aten::is_set_to aten::output_nr aten::retains_grad aten::_version "
     "aten::_has_same_storage_numel aten::_is_zerotensor aten::sym_is_contiguous "
     "aten::cudnn_is_acceptable",
     kGeometryQuestion, "", kShape},
    {"aten::_fused_sdp_choice", kGeometryQuestion, "", "chooses a kernel by shapes and switches"},
    {"aten::result_type", kGeometryQuestion, "", "answers from dtypes and dimensions"},
    {"aten::_batch_norm_impl_index", kGeometryQuestion, "", "says which kernel shapes chose"},
    {"aten::_scaled_dot_product_fused_attention_overrideable "
     "aten::_scaled_dot_product_flash_attention aten::_scaled_dot_product_cudnn_attention "
     "aten::_flash_attention_forward aten::_efficient_attention_forward "
     "aten::_cudnn_attention_forward",
     kGeometryQuestion, "", kCounts},

    {"aten::resize_", kChangesStorage, "", "may grow the storage"},
    {"aten::resize_as_", kChangesStorage, "", "may grow the storage"},
    {"aten::resize_as_sparse_", kChangesStorage, "", "changes indices and values"},
    {"aten::set_", kChangesStorage, "", "puts another storage under the tensor"},

    {"aten::_pack_padded_sequence", kDynamicShape, "", "the packed length is the sum of lengths"},

    {"aten::floor_divide aten::floor_divide_ aten::remainder aten::remainder_ aten::fmod "
     "aten::fmod_",
     kThrowsOnData, "", kInteger},
    {"aten::bernoulli", kThrowsOnData, "", "raises for a probability outside [0, 1]"},
    {"aten::bernoulli_", kThrowsOnData, "", "raises for a probability outside [0, 1]"},

    {"aten::_local_scalar_dense", kNeverThrows, "", "reads one element"},
    {"aten::mm aten::addmm aten::bmm aten::baddbmm aten::mv aten::addmv aten::dot aten::sum "
     "aten::mean aten::cat aten::zero_ aten::_to_copy aten::linear aten::_log_softmax "
     "aten::_log_softmax_backward_data aten::_softmax aten::_softmax_backward_data "
     "aten::convolution aten::convolution_backward aten::mkldnn_convolution "
     "aten::native_batch_norm aten::native_batch_norm_backward aten::native_layer_norm "
     "aten::native_layer_norm_backward aten::max_pool2d_with_indices aten::threshold_backward",
     kNeverThrows, "", kAlgebra},

    {"aten::arange", kSizesByScalar, "", "as many elements as steps fit between start and end"},
    {"aten::range", kSizesByScalar, "", "as many elements as steps fit between start and end"},

    {"aten::addmm aten::addmm_ aten::addmv aten::addmv_ aten::addbmm aten::addbmm_ "
     "aten::baddbmm aten::baddbmm_",
     kUnreadAtZero, "beta", kZero},

    {"aten::scatter_", kFillsByIndex, "index", kPermutation},
    {"aten::index_copy_", kFillsByIndex, "index", kPermutation},
    {"aten::index_put_", kFillsByIndex, "indices", kPermutation},
    {"aten::_index_put_impl_", kFillsByIndex, "indices", kPermutation},
    {"aten::sort", kGivesEachIndex, "", "says where each element was"},
    {"aten::argsort", kGivesEachIndex, "", "says where each element was"},
    {"aten::randperm", kGivesEachIndex, "", "draws a permutation"},

    {"c10d::allreduce_ c10d::allreduce_coalesced_ c10d::reduce_", kExchanges, "", kAll},
    {"c10d::broadcast_", kExchanges, "tensors", "its root alone reads what it is given"},
    {"c10d::allgather_ c10d::reduce_scatter_ c10d::gather_ c10d::scatter_ c10d::alltoall_",
     kExchanges, "output_tensors", kAll},
    {"c10d::_allgather_base_", kExchanges, "output_tensor", kAll},
    {"c10d::allgather_into_tensor_coalesced_", kExchanges, "outputs", kAll},
    {"c10d::_reduce_scatter_base_", kExchanges, "output_tensor", kAll},
    {"c10d::reduce_scatter_tensor_coalesced_", kExchanges, "outputs", kAll},
    {"c10d::alltoall_base_", kExchanges, "output", kAll},
    {"c10d::barrier", kExchanges, "tensor", kAll},

    {"aten::_print", kSideEffect, "", "prints"},
    {"aten::from_file", kSideEffect, "", "opens a file"},
    {"aten::record_stream", kSideEffect, "", "tells an allocator about a stream"},
});

}  // namespace

std::span<const Exception> exceptions() noexcept { return kTable; }

bool Exception::is_of(std::string_view name) const noexcept {
  if (names.ends_with("::")) return name.starts_with(names);
  for (std::size_t at = names.find(name); at != names.npos; at = names.find(name, at + 1)) {
    const std::string_view rest = names.substr(at + name.size());
    if ((at == 0 || names[at - 1] == ' ') && (rest.empty() || rest[0] == ' ')) return true;
  }
  return false;
}

const Exception* find_exception(std::string_view name, ExceptionKind kind) noexcept {
  const auto found = std::ranges::find_if(
      kTable, [&](const Exception& row) { return row.kind == kind && row.is_of(name); });
  return found == kTable.end() ? nullptr : &*found;
}

}  // namespace steptape::live
