#include "trace/operators.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace steptape::trace {
namespace {

/// The text up to the first of `ends` that stands outside of brackets and strings.
std::string_view head_of(std::string_view text, std::string_view ends) {
  int depth = 0;
  char quote = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quote != 0) {
      if (c == quote) quote = 0;
      continue;
    }
    if (depth == 0 && ends.find(c) != std::string_view::npos) return text.substr(0, i);
    if (c == '"' || c == '\'') quote = c;
    if (c == '(' || c == '[') ++depth;
    if (c == ')' || c == ']') --depth;
  }
  return text;
}

std::string_view trimmed(std::string_view text) {
  while (text.starts_with(' ')) text.remove_prefix(1);
  while (text.ends_with(' ')) text.remove_suffix(1);
  return text;
}

}  // namespace

std::vector<SchemaArgument> arguments_of(std::string_view schema) {
  std::vector<SchemaArgument> arguments;
  schema.remove_prefix(std::min(schema.find('('), schema.size()));
  if (schema.empty()) return arguments;
  schema.remove_prefix(1);
  bool by_keyword = false;
  while (true) {
    const std::string_view item = head_of(schema, ",)");
    const std::string_view declared = trimmed(head_of(item, "="));
    if (declared == "*") {
      by_keyword = true;
    } else if (!declared.empty()) {
      const std::size_t space = declared.rfind(' ');
      const bool is_written = declared.find('!') != std::string_view::npos;
      const bool has_type = space != std::string_view::npos;
      arguments.push_back(
          {declared.substr(has_type ? space + 1 : 0), is_written, is_written && by_keyword,
           has_type ? trimmed(declared.substr(0, space)) : std::string_view(), by_keyword});
    }
    schema.remove_prefix(item.size());
    if (!schema.starts_with(',')) return arguments;
    schema.remove_prefix(1);
  }
}

std::string argument_name(const std::vector<SchemaArgument>& arguments, std::size_t position) {
  return position < arguments.size() ? std::string(arguments[position].name)
                                     : fmt::format("inputs[{}]", position);
}

namespace {

void add(std::vector<TensorId>& tensors, TensorId id) {
  if (id != kNoTensor && std::ranges::find(tensors, id) == tensors.end()) tensors.push_back(id);
}

OpUse use_of(const Op& op, const std::vector<SchemaArgument>& arguments) {
  OpUse use;
  for (std::size_t a = 0; a < op.inputs.size(); ++a) {
    const SchemaArgument argument = a < arguments.size() ? arguments[a] : SchemaArgument();
    for_each_tensor(op.inputs[a], [&](TensorId id) {
      if (!argument.is_output) add(use.reads, id);
      if (argument.is_written) add(use.writes, id);
    });
  }
  for (const TensorId id : op.unannotated_writes) add(use.writes, id);
  return use;
}

}  // namespace

std::vector<OpUse> uses_of(const Recording& recording) {
  std::vector<std::vector<SchemaArgument>> arguments;
  arguments.reserve(recording.operators.size());
  for (const Operator& op : recording.operators) arguments.push_back(arguments_of(op.schema));
  std::vector<OpUse> uses;
  uses.reserve(recording.ops.size());
  for (const Op& op : recording.ops) uses.push_back(use_of(op, arguments[op.op]));
  return uses;
}

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
