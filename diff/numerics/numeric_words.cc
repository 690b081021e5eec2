#include "diff/numerics/numeric_words.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

#include "trace/operators.h"
#include "trace/text/text.h"
#include "trace/value.h"

namespace steptape::diff {
namespace {

constexpr std::string_view kSeparator = " > ";

const trace::Value* value_at(const trace::Op& op, trace::Index argument, trace::Index item) {
  if (argument >= op.inputs.size()) return nullptr;
  const trace::Value& value = op.inputs[argument];
  if (item == trace::kNone) return &value;
  const auto* list = std::get_if<trace::List>(&value.data);
  return list != nullptr && item < list->size() ? &(*list)[item] : nullptr;
}

std::string name_of_input(const OpStream& stream, const trace::Op& op, const NumericInput& input) {
  const auto names = trace::arguments_of(stream.recording().operator_of(op).schema);
  std::string name = trace::argument_name(names, input.argument);
  if (input.item != trace::kNone) name += fmt::format("[{}]", input.item);
  return name;
}

std::string name_of_op(const OpStream& stream, trace::Index op) {
  const trace::Recording& recording = stream.recording();
  return fmt::format("op {} {}", op, recording.operator_of(recording.ops[op]).full_name());
}

/// "model.fc1.weight at entry", "0.5 made by the host"
std::string words_of_entry(const OpStream& stream, const trace::Tensor& tensor) {
  const trace::Buffer& buffer = stream.recording().buffers[tensor.buffer];
  if (!buffer.path.empty()) return buffer.path + " at entry";
  const bool is_number = buffer.content && tensor.numel() == 1 && tensor.offset == 0 &&
                         buffer.content->size() == bytes_of(tensor.dtype);
  if (!is_number) return "a tensor that the host made";
  return words_of(element_of(buffer.content->data(), tensor.dtype)) + " made by the host";
}

std::string words_of_tensor(const OpStream& stream, trace::Index op, const NumericInput& input,
                            Source source) {
  const trace::Value* value = value_at(stream.recording().ops[op], input.argument, input.item);
  const auto* tensor = value == nullptr ? nullptr : std::get_if<trace::TensorRef>(&value->data);
  if (tensor == nullptr) return value == nullptr ? "absent" : words_of(*value);
  if (tensor->id == trace::kNoTensor) return "undefined";
  return source.op == trace::kNone ? words_of_entry(stream, stream.recording().tensors[tensor->id])
                                   : name_of_op(stream, source.op);
}

const trace::Tensor* tensor_at(const OpStream& stream, trace::Index op, const NumericInput& input) {
  const trace::Value* value = value_at(stream.recording().ops[op], input.argument, input.item);
  return value == nullptr ? nullptr : stream.recording().find_tensor(*value);
}

std::string words_of_scalar(const OpStream& stream, trace::Index op, const NumericInput& input) {
  const trace::Value* value = value_at(stream.recording().ops[op], input.argument, input.item);
  return value == nullptr ? "absent" : words_of(*value);
}

std::string generator_of(const trace::Op& op) {
  for (const trace::Value& value : op.inputs) {
    if (const auto* given = std::get_if<trace::GeneratorRef>(&value.data)) return given->path;
  }
  return "default";
}

std::string words_of_state(const OpStream& stream, Source before) {
  return before.op == trace::kNone ? "as it entered or was set"
                                   : "after " + name_of_op(stream, before.op);
}

std::string words_of_both(const InputWords& input) {
  return input.a == input.b ? input.a : fmt::format("{} → {}", input.a, input.b);
}

}  // namespace

InputWords words_of_input(const NumericOp& op, const OpStream& a, const OpStream& b) {
  const trace::Op& of_a = a.recording().ops[op.a];
  const NumericInput& input = op.input;
  switch (input.kind) {
    case InputKind::kNone:
      return {};
    case InputKind::kScalar:
      return {name_of_input(a, of_a, input), words_of_scalar(a, op.a, input),
              words_of_scalar(b, op.b, input)};
    case InputKind::kGenerator:
      return {"generator " + generator_of(of_a), words_of_state(a, input.a),
              words_of_state(b, input.b)};
    case InputKind::kTensor:
      break;
  }
  const trace::Tensor* p = tensor_at(a, op.a, input);
  const trace::Tensor* q = tensor_at(b, op.b, input);
  if (p != nullptr && q != nullptr && (p->sizes != q->sizes || p->dtype != q->dtype)) {
    return {name_of_input(a, of_a, input), words_of_geometry(*p), words_of_geometry(*q)};
  }
  return {name_of_input(a, of_a, input), words_of_tensor(a, op.a, input, input.a),
          words_of_tensor(b, op.b, input, input.b)};
}

std::string words_of_cause(const NumericOp& op, const OpStream& a, const OpStream& b) {
  const InputWords input = words_of_input(op, a, b);
  switch (op.status) {
    case NumericStatus::kOrigin:
      break;
    case NumericStatus::kReceiver:
      return fmt::format("{} differs: {}", input.name, words_of_both(input));
    case NumericStatus::kUnknown:
      return fmt::format("{} is not known: {}", input.name, words_of_both(input));
  }
  const std::string name_a = a.recording().operator_of(a.recording().ops[op.a]).full_name();
  const std::string name_b = b.recording().operator_of(b.recording().ops[op.b]).full_name();
  return name_a == name_b ? "inputs are equal"
                          : fmt::format("inputs are equal, the op is {} → {}", name_a, name_b);
}

std::string words_of_place(const NumericOp& op, const OpStream& a, const OpStream& b) {
  const trace::Op& of_a = a.recording().ops[op.a];
  std::string words = fmt::format("op {}", op.a);
  if (op.a != op.b) words += fmt::format(" → {}", op.b);
  words += " " + a.recording().operator_of(of_a).full_name();
  const std::string call = a.call_of(of_a);
  if (!call.empty()) words += " in " + call;
  if (of_a.phase == trace::Phase::kBackward) words += ", backward";
  const trace::Op& of_b = b.recording().ops[op.b];
  const trace::Index scope = of_a.scope;
  if (scope != trace::kNone) {
    words += ", " + a.recording().scopes[scope];
  } else if (of_b.scope != trace::kNone) {
    words += ", " + b.recording().scopes[of_b.scope];
  }
  return words;
}

std::string words_of_entered(const NumericDifferences& found, const trace::Recording& a,
                             std::size_t most) {
  std::vector<std::string> paths;
  for (const EnteredBuffer& buffer : found.entered) {
    if (!buffer.is_noisy) paths.push_back(a.buffers[buffer.a].path);
  }
  return words_of_some(paths, most);
}

std::string words_of_some(std::span<const std::string> names, std::size_t most) {
  const std::size_t shown = std::min(most, names.size());
  std::string words = fmt::format("{}", fmt::join(names.first(shown), ", "));
  if (shown < names.size()) words += fmt::format(" (and {} more)", names.size() - shown);
  return words;
}

std::string_view line_of(std::string_view scope) noexcept {
  const std::size_t separator = scope.rfind(kSeparator);
  if (separator != std::string_view::npos) scope.remove_prefix(separator + kSeparator.size());
  const std::size_t colon = scope.rfind(':');
  if (colon == std::string_view::npos || colon == 0 || colon + 1 == scope.size()) return {};
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  return std::ranges::all_of(scope.substr(colon + 1), is_digit) ? scope : std::string_view();
}

}  // namespace steptape::diff
