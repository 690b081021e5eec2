#include "live/effects.h"

#include <array>

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
    {"aten::native_batch_norm", kWrites, kStatistics, kRunning},
    {"aten::cudnn_batch_norm", kWrites, kStatistics, kRunning},
    {"aten::miopen_batch_norm", kWrites, kStatistics, kRunning},
    {"aten::_native_batch_norm_legit", kWrites, kStatistics, kRunning},
    {"aten::batch_norm_update_stats", kWrites, kStatistics, kRunning},
    {"aten::batch_norm_gather_stats", kWrites, kStatistics, kRunning},
    {"aten::batch_norm_gather_stats_with_counts", kWrites, kStatistics, kRunning},
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

    {"aten::is_same_size", kGeometryQuestion, "", kShape},
    {"aten::_fused_sdp_choice", kGeometryQuestion, "", "chooses a kernel by shapes and switches"},
    {"aten::_has_compatible_shallow_copy_type", kGeometryQuestion, "", kShape},
    {"aten::_debug_has_internal_overlap", kGeometryQuestion, "", kShape},
    {"aten::size", kGeometryQuestion, "", kShape},
    {"aten::stride", kGeometryQuestion, "", kShape},
    {"aten::sym_size", kGeometryQuestion, "", kShape},
    {"aten::sym_stride", kGeometryQuestion, "", kShape},
    {"aten::sym_numel", kGeometryQuestion, "", kShape},
    {"aten::sym_storage_offset", kGeometryQuestion, "", kShape},
    {"aten::is_pinned", kGeometryQuestion, "", kShape},
    {"aten::is_complex", kGeometryQuestion, "", kShape},
    {"aten::is_floating_point", kGeometryQuestion, "", kShape},
    {"aten::is_signed", kGeometryQuestion, "", kShape},
    {"aten::is_conj", kGeometryQuestion, "", kShape},
    {"aten::is_neg", kGeometryQuestion, "", kShape},
    {"aten::is_inference", kGeometryQuestion, "", kShape},
    {"aten::is_leaf", kGeometryQuestion, "", kShape},
    {"aten::is_set_to", kGeometryQuestion, "", kShape},
    {"aten::output_nr", kGeometryQuestion, "", kShape},
    {"aten::retains_grad", kGeometryQuestion, "", kShape},
    {"aten::_version", kGeometryQuestion, "", kShape},
    {"aten::_has_same_storage_numel", kGeometryQuestion, "", kShape},
    {"aten::_is_zerotensor", kGeometryQuestion, "", kShape},
    {"aten::sym_is_contiguous", kGeometryQuestion, "", kShape},
    {"aten::cudnn_is_acceptable", kGeometryQuestion, "", kShape},
    {"aten::result_type", kGeometryQuestion, "", "answers from dtypes and dimensions"},
    {"aten::_batch_norm_impl_index", kGeometryQuestion, "", "says which kernel shapes chose"},
    {"aten::_scaled_dot_product_fused_attention_overrideable", kGeometryQuestion, "", kCounts},
    {"aten::_scaled_dot_product_flash_attention", kGeometryQuestion, "", kCounts},
    {"aten::_scaled_dot_product_cudnn_attention", kGeometryQuestion, "", kCounts},
    {"aten::_flash_attention_forward", kGeometryQuestion, "", kCounts},
    {"aten::_efficient_attention_forward", kGeometryQuestion, "", kCounts},
    {"aten::_cudnn_attention_forward", kGeometryQuestion, "", kCounts},

    {"aten::resize_", kChangesStorage, "", "may grow the storage"},
    {"aten::resize_as_", kChangesStorage, "", "may grow the storage"},
    {"aten::resize_as_sparse_", kChangesStorage, "", "changes indices and values"},
    {"aten::set_", kChangesStorage, "", "puts another storage under the tensor"},

    {"aten::_pack_padded_sequence", kDynamicShape, "", "the packed length is the sum of lengths"},

    {"aten::floor_divide", kThrowsOnData, "", kInteger},
    {"aten::floor_divide_", kThrowsOnData, "", kInteger},
    {"aten::remainder", kThrowsOnData, "", kInteger},
    {"aten::remainder_", kThrowsOnData, "", kInteger},
    {"aten::fmod", kThrowsOnData, "", kInteger},
    {"aten::fmod_", kThrowsOnData, "", kInteger},
    {"aten::bernoulli", kThrowsOnData, "", "raises for a probability outside [0, 1]"},
    {"aten::bernoulli_", kThrowsOnData, "", "raises for a probability outside [0, 1]"},

    {"aten::_local_scalar_dense", kNeverThrows, "", "reads one element"},
    {"aten::mm", kNeverThrows, "", kAlgebra},
    {"aten::addmm", kNeverThrows, "", kAlgebra},
    {"aten::bmm", kNeverThrows, "", kAlgebra},
    {"aten::baddbmm", kNeverThrows, "", kAlgebra},
    {"aten::mv", kNeverThrows, "", kAlgebra},
    {"aten::addmv", kNeverThrows, "", kAlgebra},
    {"aten::dot", kNeverThrows, "", kAlgebra},
    {"aten::sum", kNeverThrows, "", kAlgebra},
    {"aten::mean", kNeverThrows, "", kAlgebra},
    {"aten::cat", kNeverThrows, "", kAlgebra},
    {"aten::zero_", kNeverThrows, "", kAlgebra},
    {"aten::_to_copy", kNeverThrows, "", kAlgebra},
    {"aten::linear", kNeverThrows, "", kAlgebra},
    {"aten::_log_softmax", kNeverThrows, "", kAlgebra},
    {"aten::_log_softmax_backward_data", kNeverThrows, "", kAlgebra},
    {"aten::_softmax", kNeverThrows, "", kAlgebra},
    {"aten::_softmax_backward_data", kNeverThrows, "", kAlgebra},
    {"aten::convolution", kNeverThrows, "", kAlgebra},
    {"aten::convolution_backward", kNeverThrows, "", kAlgebra},
    {"aten::mkldnn_convolution", kNeverThrows, "", kAlgebra},
    {"aten::native_batch_norm", kNeverThrows, "", kAlgebra},
    {"aten::native_batch_norm_backward", kNeverThrows, "", kAlgebra},
    {"aten::native_layer_norm", kNeverThrows, "", kAlgebra},
    {"aten::native_layer_norm_backward", kNeverThrows, "", kAlgebra},
    {"aten::max_pool2d_with_indices", kNeverThrows, "", kAlgebra},
    {"aten::threshold_backward", kNeverThrows, "", kAlgebra},

    {"aten::arange", kSizesByScalar, "", "as many elements as steps fit between start and end"},
    {"aten::range", kSizesByScalar, "", "as many elements as steps fit between start and end"},

    {"aten::addmm", kUnreadAtZero, "beta", kZero},
    {"aten::addmm_", kUnreadAtZero, "beta", kZero},
    {"aten::addmv", kUnreadAtZero, "beta", kZero},
    {"aten::addmv_", kUnreadAtZero, "beta", kZero},
    {"aten::addbmm", kUnreadAtZero, "beta", kZero},
    {"aten::addbmm_", kUnreadAtZero, "beta", kZero},
    {"aten::baddbmm", kUnreadAtZero, "beta", kZero},
    {"aten::baddbmm_", kUnreadAtZero, "beta", kZero},

    {"aten::scatter_", kFillsByIndex, "index", kPermutation},
    {"aten::index_copy_", kFillsByIndex, "index", kPermutation},
    {"aten::index_put_", kFillsByIndex, "indices", kPermutation},
    {"aten::_index_put_impl_", kFillsByIndex, "indices", kPermutation},
    {"aten::sort", kGivesEachIndex, "", "says where each element was"},
    {"aten::argsort", kGivesEachIndex, "", "says where each element was"},
    {"aten::randperm", kGivesEachIndex, "", "draws a permutation"},

    {"c10d::allreduce_", kExchanges, "", kAll},
    {"c10d::allreduce_coalesced_", kExchanges, "", kAll},
    {"c10d::reduce_", kExchanges, "", kAll},
    {"c10d::broadcast_", kExchanges, "tensors", "its root alone reads what it is given"},
    {"c10d::allgather_", kExchanges, "output_tensors", kAll},
    {"c10d::_allgather_base_", kExchanges, "output_tensor", kAll},
    {"c10d::allgather_into_tensor_coalesced_", kExchanges, "outputs", kAll},
    {"c10d::reduce_scatter_", kExchanges, "output_tensors", kAll},
    {"c10d::_reduce_scatter_base_", kExchanges, "output_tensor", kAll},
    {"c10d::reduce_scatter_tensor_coalesced_", kExchanges, "outputs", kAll},
    {"c10d::gather_", kExchanges, "output_tensors", kAll},
    {"c10d::scatter_", kExchanges, "output_tensors", kAll},
    {"c10d::alltoall_", kExchanges, "output_tensors", kAll},
    {"c10d::alltoall_base_", kExchanges, "output", kAll},
    {"c10d::barrier", kExchanges, "tensor", kAll},

    {"aten::_print", kSideEffect, "", "prints"},
    {"aten::from_file", kSideEffect, "", "opens a file"},
    {"aten::record_stream", kSideEffect, "", "tells an allocator about a stream"},
});

}  // namespace

std::span<const Exception> exceptions() noexcept { return kTable; }

const Exception* find_exception(std::string_view name, ExceptionKind kind) noexcept {
  for (const Exception& row : kTable) {
    const bool library = row.name.ends_with("::");
    if (row.kind == kind && (library ? name.starts_with(row.name) : name == row.name)) return &row;
  }
  return nullptr;
}

}  // namespace steptape::live
