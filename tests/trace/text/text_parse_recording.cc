#include "tests/trace/text/text_parse_recording.h"

#include <fmt/format.h>

#include <array>

#include "tests/trace/text/named_value.h"
#include "trace/text/text.h"

namespace steptape::trace {

RecordingParser::RecordingParser(TextReader& reader, Recording& recording)
    : in_(reader), recording_(recording) {
  recording_.status = in_.take_named("a status", value_named<Status>);
  if (in_.accept("call")) recording_.call = in_.take_number("the number of a call");
  in_.expect_end_of_line();
}

RecordingParser::Parse RecordingParser::parse_of(std::string_view word) noexcept {
  struct Row {
    std::string_view word;
    Parse parse;
  };
  static constexpr std::array kRows = {
      Row{"ambient", &RecordingParser::parse_ambient},
      Row{"operator", &RecordingParser::parse_operator},
      Row{"module", &RecordingParser::parse_module},
      Row{"option", &RecordingParser::parse_option},
      Row{"scope", &RecordingParser::parse_scope},
      Row{"buffer", &RecordingParser::parse_buffer},
      Row{"tensor", &RecordingParser::parse_tensor},
      Row{"tracked", &RecordingParser::parse_tracked},
      Row{"input", &RecordingParser::parse_input},
      Row{"optimizer", &RecordingParser::parse_optimizer},
      Row{"group", &RecordingParser::parse_group},
      Row{"hyperparameter", &RecordingParser::parse_hyperparameter},
      Row{"parameter", &RecordingParser::parse_parameter},
      Row{"state", &RecordingParser::parse_state},
      Row{"op", &RecordingParser::parse_op},
      Row{"access", &RecordingParser::parse_access},
      Row{"generator", &RecordingParser::parse_generator},
      Row{"seek", &RecordingParser::parse_seek},
      Row{"result", &RecordingParser::parse_result},
      Row{"exit_gradient", &RecordingParser::parse_exit_gradient},
      Row{"exit_memory", &RecordingParser::parse_exit_memory},
      Row{"refusal", &RecordingParser::parse_refusal},
      Row{"host_value", &RecordingParser::parse_host_value},
      Row{"fact", &RecordingParser::parse_fact},
      Row{"lookup", &RecordingParser::parse_lookup},
      Row{"leaf", &RecordingParser::parse_leaf},
      Row{"formula", &RecordingParser::parse_formula},
      Row{"scalar", &RecordingParser::parse_scalar},
      Row{"window", &RecordingParser::parse_window},
      Row{"proof", &RecordingParser::parse_proof},
      Row{"predicate", &RecordingParser::parse_predicate},
      Row{"advance", &RecordingParser::parse_advance},
      Row{"read", &RecordingParser::parse_read},
      Row{"number", &RecordingParser::parse_number},
      Row{"observed", &RecordingParser::parse_observed},
      Row{"update", &RecordingParser::parse_update},
      Row{"effect", &RecordingParser::parse_effect},
      Row{"held", &RecordingParser::parse_held},
      Row{"place", &RecordingParser::parse_place},
  };
  for (const Row& row : kRows) {
    if (row.word == word) return row.parse;
  }
  return nullptr;
}

bool RecordingParser::parse_line() {
  const Parse parse = parse_of(in_.peek_word());
  if (!parse) return false;
  in_.take_word("a word");
  (this->*parse)();
  in_.expect_end_of_line();
  return true;
}

void RecordingParser::expect_position(char prefix, std::size_t position) {
  in_.expect(fmt::format("{}{}", prefix, position));
}

void RecordingParser::parse_ambient() {
  Fact& fact = recording_.ambient.emplace_back();
  fact.name = in_.take_string();
  in_.expect("=");
  fact.value = in_.take_string();
}

void RecordingParser::parse_operator() {
  expect_position('o', recording_.operators.size());
  Operator& op = recording_.operators.emplace_back();
  op.name = in_.take_string();
  op.overload = in_.take_string();
  op.schema = in_.take_string();
  operators_.emplace(op.full_name(), static_cast<Index>(recording_.operators.size() - 1));
}

void RecordingParser::parse_module() {
  expect_position('m', recording_.modules.size());
  Module& module = recording_.modules.emplace_back();
  module.path = in_.take_string();
  module.type = in_.take_string();
  module.training = in_.accept("training");
  if (!module.training) in_.expect("evaluating");
  take_aliases(module.aliases);
}

void RecordingParser::parse_option() {
  if (recording_.modules.empty()) in_.fail("a module line before this one");
  take_named_value(recording_.modules.back().options);
}

void RecordingParser::take_aliases(std::vector<std::string>& aliases) {
  while (in_.accept("also")) aliases.push_back(in_.take_string());
}

void RecordingParser::parse_scope() {
  expect_position('s', recording_.scopes.size());
  recording_.scopes.push_back(in_.take_string());
}

void RecordingParser::parse_buffer() {
  expect_position('b', recording_.buffers.size());
  Buffer& buffer = recording_.buffers.emplace_back();
  buffer.bytes = in_.take_number("a number of bytes");
  in_.expect("bytes");
  buffer.device = in_.take_named("a device", device_named);
  buffer.role = in_.take_named("a role", value_named<Role>);
  buffer.path = in_.take_string();
  in_.expect("address");
  buffer.address_mod_64 = static_cast<std::uint8_t>(in_.take_number("an address remainder", 255));
  if (in_.accept("digest")) buffer.digest = in_.take_digest();
  if (in_.accept("content")) buffer.content = in_.take_bytes();
}

void RecordingParser::parse_tensor() {
  expect_position('t', recording_.tensors.size());
  Tensor& tensor = recording_.tensors.emplace_back();
  in_.expect("in");
  tensor.buffer = in_.take_index('b', "a buffer");
  tensor.dtype = in_.take_named("a dtype", dtype_of);
  in_.expect("sizes");
  tensor.sizes = in_.take_integers();
  in_.expect("strides");
  tensor.strides = in_.take_integers();
  in_.expect("offset");
  tensor.offset = in_.take_integer("an offset");
  tensor.conj = in_.accept("conj");
  tensor.neg = in_.accept("neg");
  tensor.wrapped_number = in_.accept("wrapped_number");
}

void RecordingParser::parse_tracked() {
  Tracked& tracked = recording_.tracked.emplace_back();
  tracked.path = in_.take_string();
  tracked.role = in_.take_named("a role", value_named<Role>);
  tracked.tensor = in_.take_tensor();
  tracked.requires_grad = in_.accept("requires_grad");
  tracked.in_state_dict = !in_.accept("not_in_state_dict");
  take_aliases(tracked.aliases);
}

void RecordingParser::parse_input() {
  Input& input = recording_.inputs.emplace_back();
  input.path = in_.take_string();
  in_.expect("=");
  input.value = in_.take_value();
  input.requires_grad = in_.accept("requires_grad");
  if (in_.accept("range")) {
    const std::int64_t smallest = in_.take_integer("the smallest element");
    input.range = {smallest, in_.take_integer("the largest element")};
  }
  if (in_.accept("same")) input.same_as = in_.take_string();
  input.changes_requires_grad = in_.accept("changes_requires_grad");
}

OptimizerLayout& RecordingParser::last_optimizer() {
  if (recording_.optimizers.empty()) in_.fail("an optimizer line before this one");
  return recording_.optimizers.back();
}

ParameterGroup& RecordingParser::last_group() {
  OptimizerLayout& optimizer = last_optimizer();
  if (optimizer.groups.empty()) in_.fail("a group line before this one");
  return optimizer.groups.back();
}

void RecordingParser::parse_optimizer() {
  OptimizerLayout& optimizer = recording_.optimizers.emplace_back();
  optimizer.path = in_.take_string();
  optimizer.type = in_.take_string();
  optimizer.has_formulas = in_.accept("formulas");
}

void RecordingParser::parse_group() { last_optimizer().groups.emplace_back(); }

void RecordingParser::parse_hyperparameter() { take_named_value(last_group().hyperparameters); }

void RecordingParser::parse_parameter() { last_group().parameters.push_back(in_.take_string()); }

void RecordingParser::parse_state() {
  OptimizerStateEntry& entry = last_optimizer().state.emplace_back();
  entry.parameter = in_.take_string();
  entry.key = in_.take_string();
  in_.expect("=");
  entry.value = in_.take_value();
}

Index RecordingParser::take_operator() {
  const std::string_view word = in_.peek_word();
  if (is_operator_word(word)) {
    const auto found = operators_.find(std::string(word));
    if (found == operators_.end()) in_.fail("an operator of an operator line above");
    in_.take_word("an operator");
    return found->second;
  }
  return in_.take_index('o', "an operator");
}

void RecordingParser::parse_op() {
  const std::size_t position = recording_.ops.size();
  Op& op = recording_.ops.emplace_back();
  if (in_.take_number(fmt::format("op {}", position)) != position) {
    in_.fail(fmt::format("op {} before this", position));
  }
  in_.expect(":");
  const std::string_view word = in_.peek_word();
  const bool calls_at_once =
      is_operator_word(word) || (word.size() > 1 && word[0] == 'o' && word[1] <= '9');
  if (!calls_at_once) {
    do {
      op.outputs.push_back(in_.take_value());
    } while (in_.accept(","));
    in_.expect("=");
  }
  op.op = take_operator();
  in_.expect("(");
  if (!in_.accept(")")) {
    do {
      op.inputs.push_back(in_.take_value());
    } while (in_.accept(","));
    in_.expect(")");
  }
  parse_op_attributes(op);
}

void RecordingParser::parse_op_attributes(Op& op) {
  const bool backward = in_.accept("backward");
  if (!backward) in_.expect("forward");
  op.phase = backward ? Phase::kBackward : Phase::kForward;
  if (in_.accept("module")) op.module = in_.take_index('m', "a module");
  op.call = usual_call(op.module);
  if (in_.accept("call")) op.call = take_call();
  if (in_.accept("scope")) op.scope = in_.take_index('s', "a scope");
  if (in_.accept("sequence")) op.sequence = in_.take_integer("a sequence number");
  while (in_.accept("writes")) op.unannotated_writes.push_back(in_.take_index('t', "a tensor"));
  if (in_.accept("digest")) {
    require_all_have(recording_.op_digests.size(), "digest");
    recording_.op_digests.push_back(in_.take_digest());
  }
  if (in_.accept("took")) {
    require_all_have(recording_.op_ns.size(), "time");
    recording_.op_ns.push_back(static_cast<std::uint32_t>(in_.take_number("a time", UINT32_MAX)));
    in_.expect("ns");
  }
}

void RecordingParser::require_all_have(std::size_t count, std::string_view what) {
  if (count + 1 == recording_.ops.size()) return;
  in_.fail(fmt::format("no {}, since the op before has none", what));
}

void RecordingParser::parse_access() {
  ModuleAccess& access = recording_.module_access.emplace_back();
  access.module = in_.take_index('m', "a module");
  if (in_.accept("call")) access.call = take_call();
  in_.expect("from");
  in_.expect("op");
  access.first_op = static_cast<Index>(in_.take_number("a position", UINT32_MAX));
}

std::uint32_t RecordingParser::take_call() {
  return static_cast<std::uint32_t>(in_.take_number("the number of a call", UINT32_MAX));
}

void RecordingParser::parse_generator() {
  GeneratorState& generator = recording_.generators.emplace_back();
  generator.path = in_.take_string();
  generator.digest = in_.take_digest();
  if (in_.accept("content")) generator.content = in_.take_bytes();
}

void RecordingParser::parse_seek() {
  Seek& seek = recording_.seeks.emplace_back();
  in_.expect("before");
  in_.expect("op");
  seek.before_op = static_cast<Index>(in_.take_number("a position", UINT32_MAX));
  seek.generator = in_.take_string();
  seek.state = in_.take_digest();
  if (!in_.accept("from")) return;
  seek.is_earlier = true;
  if (!in_.accept("entry")) seek.after_op = take_op("a position");
}

void RecordingParser::parse_result() { recording_.results.push_back(in_.take_tensor()); }

void RecordingParser::parse_exit_gradient() {
  ExitGradient& gradient = recording_.exit_gradients.emplace_back();
  gradient.parameter = in_.take_string();
  in_.expect("=");
  gradient.tensor = in_.take_tensor();
}

void RecordingParser::parse_exit_memory() {
  parse_exit_gradient();
  recording_.exit_gradients.back().is_memory = true;
}

void RecordingParser::parse_refusal() {
  Refusal& refusal = recording_.refusals.emplace_back();
  refusal.code = in_.take_named("a refusal's name", refusal_code_of);
  refusal.message = in_.take_string();
  in_.expect("op");
  refusal.op_index = in_.take_integer("a position");
  refusal.op = in_.take_string();
  in_.expect("module");
  refusal.module = in_.take_string();
  in_.expect("place");
  refusal.place = in_.take_string();
}

}  // namespace steptape::trace
