#include "trace/op_exceptions.h"

#include <algorithm>
#include <array>

namespace steptape::trace {
namespace {

using enum OpException;

constexpr std::string_view kAllocates = "allocates, and writes nothing";
constexpr std::string_view kLike = "takes shape, dtype and device from its argument";
constexpr std::string_view kShape = "answers from sizes, strides or flags";
constexpr std::string_view kFills = "replaces every element";
constexpr std::string_view kDropsOut = "drops out by LibTorch's generator";

constexpr auto kTable = std::to_array<OpExceptionRow>({
    {"aten::empty", kUnwritten, kAllocates},
    {"aten::empty_like", kUnwritten, kAllocates},
    {"aten::empty_strided", kUnwritten, kAllocates},
    {"aten::empty_permuted", kUnwritten, kAllocates},
    {"aten::new_empty", kUnwritten, kAllocates},
    {"aten::new_empty_strided", kUnwritten, kAllocates},

    {"aten::empty_like", kGeometryOnly, kLike},
    {"aten::zeros_like", kGeometryOnly, kLike},
    {"aten::ones_like", kGeometryOnly, kLike},
    {"aten::full_like", kGeometryOnly, kLike},
    {"aten::rand_like", kGeometryOnly, kLike},
    {"aten::randn_like", kGeometryOnly, kLike},
    {"aten::randint_like", kGeometryOnly, kLike},
    {"aten::new_empty", kGeometryOnly, kLike},
    {"aten::new_empty_strided", kGeometryOnly, kLike},
    {"aten::new_zeros", kGeometryOnly, kLike},
    {"aten::new_ones", kGeometryOnly, kLike},
    {"aten::new_full", kGeometryOnly, kLike},

    {"aten::is_same_size", kGeometryOnly, kShape},
    {"aten::_fused_sdp_choice", kGeometryOnly, kShape},
    {"aten::_has_compatible_shallow_copy_type", kGeometryOnly, kShape},
    {"aten::_debug_has_internal_overlap", kGeometryOnly, kShape},

    {"aten::copy_", kOverwrites, kFills},
    {"aten::fill_", kOverwrites, kFills},
    {"aten::zero_", kOverwrites, kFills},
    {"aten::normal_", kOverwrites, kFills},
    {"aten::uniform_", kOverwrites, kFills},
    {"aten::random_", kOverwrites, kFills},
    {"aten::bernoulli_", kOverwrites, kFills},
    {"aten::exponential_", kOverwrites, kFills},
    {"aten::geometric_", kOverwrites, kFills},
    {"aten::log_normal_", kOverwrites, kFills},
    {"aten::cauchy_", kOverwrites, kFills},
    {"aten::_foreach_zero_", kOverwrites, kFills},
    {"aten::_foreach_copy_", kOverwrites, kFills},

    {"aten::native_dropout", kDraws, kDropsOut},
    {"aten::_scaled_dot_product_flash_attention", kDraws, kDropsOut},
    {"aten::_scaled_dot_product_efficient_attention", kDraws, kDropsOut},
    {"aten::_scaled_dot_product_cudnn_attention", kDraws, kDropsOut},
    {"aten::_cudnn_rnn", kDraws, kDropsOut},
    {"aten::rand", kDraws, "one of its overloads takes no generator"},
    {"aten::randn", kDraws, "one of its overloads takes no generator"},
    {"aten::randint", kDraws, "one of its overloads takes no generator"},
    {"aten::randperm", kDraws, "one of its overloads takes no generator"},
    {"aten::rand_like", kDraws, "one of its overloads takes no generator"},
    {"aten::randn_like", kDraws, "one of its overloads takes no generator"},
    {"aten::randint_like", kDraws, "one of its overloads takes no generator"},
});

}  // namespace

std::span<const OpExceptionRow> op_exceptions() noexcept { return kTable; }

bool is_exception(std::string_view name, OpException kind) noexcept {
  return std::ranges::any_of(
      kTable, [&](const OpExceptionRow& row) { return row.kind == kind && row.name == name; });
}

bool draws(const Operator& op) noexcept {
  return op.schema.find("Generator") != std::string::npos || is_exception(op.name, kDraws);
}

}  // namespace steptape::trace
