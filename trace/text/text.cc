#include "trace/text/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <iterator>

#include "trace/path.h"

namespace steptape::trace {
namespace {

/// The shortest that reads back: two of them are equal only where the bits are.
std::string decimal_of(Real real) {
  const double value = real.value;
  if (std::isnan(value)) return fmt::format("nan({:016x})", std::bit_cast<std::uint64_t>(value));
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  std::string decimal = fmt::format("{}", value);
  if (decimal.find_first_of(".e") == std::string::npos) decimal += ".0";
  return decimal;
}

std::string print_real(Real real) {
  const double value = real.value;
  if (!std::isfinite(value)) return decimal_of(real);
  char digits[64];
  const char* end =
      std::to_chars(digits, std::end(digits), std::fabs(value), std::chars_format::hex).ptr;
  const std::string_view hex(digits, static_cast<std::size_t>(end - digits));
  return fmt::format("{}0x{} ({})", std::signbit(value) ? "-" : "", hex, decimal_of(real));
}

struct ValuePrinter {
  std::string (*print)(Real) = print_real;

  std::string operator()(None) const { return "none"; }
  std::string operator()(bool value) const { return value ? "true" : "false"; }
  std::string operator()(std::int64_t value) const { return fmt::format("{}", value); }
  std::string operator()(Real value) const { return print(value); }
  std::string operator()(const Complex& value) const {
    return fmt::format("complex({}, {})", print(value.real), print(value.imag));
  }
  std::string operator()(const std::string& value) const { return in_quotes(value); }
  std::string operator()(const Device& value) const {
    return fmt::format("device({})", text_of(value));
  }
  std::string operator()(TensorRef value) const {
    return value.id == kNoTensor ? "undefined" : fmt::format("t{}", value.id);
  }
  std::string operator()(const GeneratorRef& value) const {
    return fmt::format("generator({})", in_quotes(value.path));
  }
  std::string operator()(const Opaque& value) const {
    return fmt::format("opaque({})", in_quotes(value.type));
  }
  std::string operator()(const IntList& value) const {
    return fmt::format("[{}]", fmt::join(value, ", "));
  }
  std::string operator()(const List& value) const {
    std::string text = "{";
    for (std::size_t i = 0; i < value.size(); ++i) {
      text += (i > 0 ? ", " : "") + std::visit(*this, value[i].data);
    }
    return text + "}";
  }
};

/// Whether the C1 control character stands there that UTF-8 writes as c2 80 to c2 9f: they move the
/// cursor of some terminals.
bool is_c1(std::string_view text, std::size_t i) {
  return static_cast<unsigned char>(text[i]) == 0xc2 && i + 1 < text.size() &&
         static_cast<unsigned char>(text[i + 1]) < 0xa0;
}

}  // namespace

std::string in_quotes(std::string_view text) {
  std::string out = "\"";
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    const bool c1 = is_c1(text, i);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += text[i];
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\t') {
      out += "\\t";
    } else if (c < 0x20 || c == 0x7f) {
      out += fmt::format("\\x{:02x}", c);
    } else if (c1) {
      out += fmt::format("\\xc2\\x{:02x}", static_cast<unsigned char>(text[++i]));
    } else {
      out += text[i];
    }
  }
  return out + '"';
}

std::string on_one_line(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    const bool c1 = is_c1(text, i);
    if (c1) ++i;
    out += c < 0x20 || c == 0x7f || c1 ? ' ' : static_cast<char>(c);
  }
  return out;
}

std::string hex_of(const std::vector<std::byte>& bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text = "x";
  text.reserve(1 + 2 * bytes.size());
  for (std::byte byte : bytes) {
    const auto number = std::to_integer<unsigned>(byte);
    text += kDigits[number >> 4];
    text += kDigits[number & 15];
  }
  return text;
}

bool is_operator_word(std::string_view word) noexcept {
  auto fits = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == ':' || c == '.';
  };
  return word.find("::") != std::string_view::npos && std::ranges::all_of(word, fits);
}

std::string print_value(const Value& value) { return std::visit(ValuePrinter(), value.data); }

std::string words_of(const Value& value) {
  return std::visit(ValuePrinter{decimal_of}, value.data);
}

namespace {

/// The name by which an op line calls its operator: the full name, or "o3" where that is not
/// enough for the parser to find the same operator again.
std::string operator_word(const Recording& recording, Index op) {
  if (op < recording.operators.size()) {
    std::string name = recording.operators[op].full_name();
    const auto first = std::ranges::find(recording.operators, name, &Operator::full_name);
    if (is_operator_word(name) && first - recording.operators.begin() == op) return name;
  }
  return fmt::format("o{}", op);
}

std::string join_values(const std::vector<Value>& values) {
  std::string text;
  for (const Value& value : values) {
    if (!text.empty()) text += ", ";
    text += print_value(value);
  }
  return text;
}

std::string origin_of(const Seek& seek) {
  if (!seek.is_earlier) return "";
  return seek.after_op == kNone ? " from entry" : fmt::format(" from op {}", seek.after_op);
}

std::string also(const std::vector<std::string>& aliases) {
  std::string text;
  for (const std::string& alias : aliases) text += " also " + in_quotes(alias);
  return text;
}

std::string_view word_if(bool flag, std::string_view word) { return flag ? word : ""; }

class Printer {
 public:
  explicit Printer(Contents contents) : contents_(contents) {}

  void print_trace(const Trace& trace) {
    line("{}", kTextHeader);
    for (const Fact& fact : trace.producer) print_fact("producer", fact);
    for (const Fact& fact : trace.run) print_fact("run", fact);
    for (const Fact& fact : trace.environment) print_fact("environment", fact);
    for (const Step& step : trace.steps) {
      line("");
      line("step {} at {}", in_quotes(step.name), in_quotes(step.place));
      for (const Recording& recording : step.recordings) {
        line("");
        print_recording(recording);
      }
    }
    if (!trace.state.empty()) line("");
    for (const Saved& saved : trace.state) {
      if (!std::holds_alternative<None>(saved.number.data)) {
        line("saved {} = {}", in_quotes(saved.path), print_value(saved.number));
        continue;
      }
      line("saved {} address {}{}", in_quotes(saved.path), saved.address_mod_64,
           content_of(saved.content));
    }
  }

  void print_recording(const Recording& recording) {
    line("recording {}{}", name_of(recording.status),
         recording.call == 0 ? "" : fmt::format(" call {}", recording.call));
    print_around(recording);
    print_memory(recording);
    print_objects(recording);
    print_ops(recording);
    print_numbers(recording);
    print_outcome(recording);
  }

  std::string take() { return std::move(text_); }

 private:
  template <typename... Args>
  void line(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(text_), format, std::forward<Args>(args)...);
    text_ += '\n';
  }

  void print_fact(std::string_view word, const Fact& fact) {
    line("{} {} = {}", word, in_quotes(fact.name), in_quotes(fact.value));
  }

  std::string content_of(const Blob& blob) const {
    if (!blob) return "";
    if (contents_ == Contents::kBytes) return " content " + hex_of(*blob);
    return fmt::format(" content {} bytes {}", blob->size(), text_of(digest_of(*blob)));
  }

  void print_around(const Recording& recording);
  void print_memory(const Recording& recording);
  void print_objects(const Recording& recording);
  void print_optimizer(const OptimizerLayout& optimizer);
  void print_ops(const Recording& recording);
  void print_numbers(const Recording& recording);
  void print_outcome(const Recording& recording);

  Contents contents_;
  std::string text_;
};

void Printer::print_around(const Recording& recording) {
  for (const Fact& fact : recording.ambient) print_fact("  ambient", fact);
  for (std::size_t i = 0; i < recording.operators.size(); ++i) {
    const Operator& op = recording.operators[i];
    line("  operator o{} {} {} {}", i, in_quotes(op.name), in_quotes(op.overload),
         in_quotes(op.schema));
  }
  for (std::size_t i = 0; i < recording.modules.size(); ++i) {
    const Module& module = recording.modules[i];
    line("  module m{} {} {} {}{}", i, in_quotes(module.path), in_quotes(module.type),
         module.training ? "training" : "evaluating", also(module.aliases));
    for (const NamedValue& option : module.options) {
      line("    option {} = {}", in_quotes(option.name), print_value(option.value));
    }
  }
  for (std::size_t i = 0; i < recording.scopes.size(); ++i) {
    line("  scope s{} {}", i, in_quotes(recording.scopes[i]));
  }
}

void Printer::print_memory(const Recording& recording) {
  for (std::size_t i = 0; i < recording.buffers.size(); ++i) {
    const Buffer& buffer = recording.buffers[i];
    line("  buffer b{} {} bytes {} {} {} address {}{}{}", i, buffer.bytes, text_of(buffer.device),
         name_of(buffer.role), in_quotes(buffer.path), buffer.address_mod_64,
         buffer.digest ? " digest " + text_of(*buffer.digest) : "", content_of(buffer.content));
  }
  for (std::size_t i = 0; i < recording.tensors.size(); ++i) {
    const Tensor& tensor = recording.tensors[i];
    line("  tensor t{} in b{} {} sizes [{}] strides [{}] offset {}{}{}{}", i, tensor.buffer,
         name_of(tensor.dtype), fmt::join(tensor.sizes, ", "), fmt::join(tensor.strides, ", "),
         tensor.offset, word_if(tensor.conj, " conj"), word_if(tensor.neg, " neg"),
         word_if(tensor.wrapped_number, " wrapped_number"));
  }
}

void Printer::print_objects(const Recording& recording) {
  for (const Tracked& tracked : recording.tracked) {
    line("  tracked {} {} {}{}{}{}", in_quotes(tracked.path), name_of(tracked.role),
         print_value({TensorRef{tracked.tensor}}), word_if(tracked.requires_grad, " requires_grad"),
         word_if(!tracked.in_state_dict, " not_in_state_dict"), also(tracked.aliases));
  }
  for (const OptimizerLayout& optimizer : recording.optimizers) print_optimizer(optimizer);
  for (const Input& input : recording.inputs) {
    const std::string range =
        input.range ? fmt::format(" range {} {}", input.range->first, input.range->second) : "";
    const std::string same =
        input.same_as.empty() ? "" : fmt::format(" same {}", in_quotes(input.same_as));
    line("  input {} = {}{}{}{}{}", in_quotes(input.path), print_value(input.value),
         word_if(input.requires_grad, " requires_grad"), range, same,
         word_if(input.changes_requires_grad, " changes_requires_grad"));
  }
}

void Printer::print_optimizer(const OptimizerLayout& optimizer) {
  line("  optimizer {} {}{}", in_quotes(optimizer.path), in_quotes(optimizer.type),
       word_if(optimizer.has_formulas, " formulas"));
  for (const ParameterGroup& group : optimizer.groups) {
    line("    group");
    for (const NamedValue& named : group.hyperparameters) {
      line("      hyperparameter {} = {}", in_quotes(named.name), print_value(named.value));
    }
    for (const std::string& path : group.parameters) line("      parameter {}", in_quotes(path));
  }
  for (const OptimizerStateEntry& entry : optimizer.state) {
    line("    state {} {} = {}", in_quotes(entry.parameter), in_quotes(entry.key),
         print_value(entry.value));
  }
}

void Printer::print_ops(const Recording& recording) {
  for (std::size_t i = 0; i < recording.ops.size(); ++i) {
    const Op& op = recording.ops[i];
    const std::string outputs = join_values(op.outputs);
    std::string tail = op.phase == Phase::kBackward ? "  backward" : "  forward";
    if (op.module != kNone) tail += fmt::format(" module m{}", op.module);
    if (op.call != usual_call(op.module)) tail += fmt::format(" call {}", op.call);
    if (op.scope != kNone) tail += fmt::format(" scope s{}", op.scope);
    if (op.sequence != -1) tail += fmt::format(" sequence {}", op.sequence);
    for (TensorId id : op.unannotated_writes) tail += fmt::format(" writes t{}", id);
    if (i < recording.op_digests.size()) tail += " digest " + text_of(recording.op_digests[i]);
    if (i < recording.op_ns.size()) tail += fmt::format(" took {} ns", recording.op_ns[i]);
    if (op.module < recording.modules.size() && !recording.modules[op.module].path.empty()) {
      tail += "  # " + in_quotes(call_path(recording.modules[op.module].path, op.call));
    }
    line("  op {}: {}{}{}{}", i, outputs, outputs.empty() ? "" : " = ", print_op(recording, op),
         tail);
  }
}

std::string node_word(const Node& node) {
  switch (node.operation) {
    case Operation::kConstant:
      return print_value({node.constant});
    case Operation::kLeaf:
      return fmt::format("l{}", node.leaf);
    default:
      return std::string(name_of(node.operation));
  }
}

void Printer::print_numbers(const Recording& recording) {
  for (const NamedValue& value : recording.host_values) {
    line("  host_value {} = {}", in_quotes(value.name), print_value(value.value));
  }
  for (const Lookup& lookup : recording.lookups) {
    std::string under;
    for (const Leaf& leaf : lookup.under)
      under += fmt::format(" {} {}", name_of(leaf.kind), in_quotes(leaf.path));
    line("  lookup {}{}", in_quotes(lookup.name), under);
  }
  for (const NamedValue& fact : recording.facts) {
    line("  fact {} = {}", in_quotes(fact.name), print_value(fact.value));
  }
  for (std::size_t i = 0; i < recording.leaves.size(); ++i) {
    const Leaf& leaf = recording.leaves[i];
    line("  leaf l{} {} {}", i, name_of(leaf.kind), in_quotes(leaf.path));
  }
  for (std::size_t i = 0; i < recording.formulas.size(); ++i) {
    std::string words;
    for (const Node& node : recording.formulas[i].nodes) words += " " + node_word(node);
    line("  formula f{}{}  # {}", i, words, text_of(recording.formulas[i], recording.leaves));
  }
  for (const ScalarSite& site : recording.scalars) {
    const std::string item = site.item == kNone ? "" : fmt::format(" item {}", site.item);
    if (site.op == kNone) {
      line("  scalar buffer b{}{} = f{}", site.buffer, item, site.formula);
    } else {
      line("  scalar op {} argument {}{} = f{}", site.op, site.argument, item, site.formula);
    }
  }
  for (const Window& window : recording.windows) {
    line("  window b{} of op {}", window.buffer, window.op);
  }
  for (const Proof& proof : recording.proofs) {
    std::string values;
    for (const double value : proof.proved.values()) values += " " + print_value({Real{value}});
    line("  proof f{} at{} turns {}{}", proof.formula, values, proof.proved.turns(),
         word_if(proof.is_pinned, " alone"));
  }
  for (const Predicate& predicate : recording.predicates) {
    line("  predicate f{} {}", predicate.formula, predicate.is_nonzero ? "nonzero" : "zero");
  }
  for (const Advance& advance : recording.advances) {
    line("  advance {} by {}", in_quotes(advance.path), advance.by);
  }
  for (const HostRead& read : recording.reads) {
    line("  read op {} {}", read.op, name_of(read.use));
  }
}

void Printer::print_outcome(const Recording& recording) {
  for (const ModuleAccess& access : recording.module_access) {
    line("  access m{}{} from op {}", access.module,
         access.call == 1 ? "" : fmt::format(" call {}", access.call), access.first_op);
  }
  for (const GeneratorState& generator : recording.generators) {
    line("  generator {} {}{}", in_quotes(generator.path), text_of(generator.digest),
         content_of(generator.content));
  }
  for (const Seek& seek : recording.seeks) {
    line("  seek before op {} {} {}{}", seek.before_op, in_quotes(seek.generator),
         text_of(seek.state), origin_of(seek));
  }
  for (TensorId result : recording.results) line("  result {}", print_value({TensorRef{result}}));
  for (const Number& number : recording.numbers) {
    line("  number = {}{}{}{}", print_value(number.value),
         number.op == kNone ? "" : fmt::format(" from op {}", number.op),
         number.formula == kNone ? "" : fmt::format(" as f{}", number.formula),
         number.becomes.empty() ? "" : " becomes " + in_quotes(number.becomes));
  }
  if (recording.observed != 0) line("  observed {}", recording.observed);
  for (const std::string& path : recording.updates) line("  update {}", in_quotes(path));
  for (const Effect& effect : recording.effects) {
    line("  effect {} = {} at {}{}", in_quotes(effect.name), in_quotes(effect.value),
         in_quotes(effect.place), effect.decides ? " decides" : "");
  }
  for (const HeldPlace& held : recording.held) {
    line("  held {} found {} left {} {}", in_quotes(held.path), in_quotes(held.found),
         in_quotes(held.left), name_of(held.rule));
  }
  for (const HeldInput& place : recording.places) {
    const auto position = [](std::string_view word, Index index) {
      return index == kNone ? "" : fmt::format(" {} {}", word, index);
    };
    line("  place {}{}{}{}{}{}", in_quotes(place.path), position("input", place.input),
         position("from result", place.result), place.is_dropped ? " dropped" : "",
         position("in", place.place), place.is_carried ? " carried" : "");
  }
  for (const ExitGradient& gradient : recording.exit_gradients) {
    line("  {} {} = {}", gradient.is_memory ? "exit_memory" : "exit_gradient",
         in_quotes(gradient.parameter), print_value({TensorRef{gradient.tensor}}));
  }
  for (const Refusal& refusal : recording.refusals) {
    line("  refusal {} {} op {} {} module {} place {}", name_of(refusal.code),
         in_quotes(refusal.message), refusal.op_index, in_quotes(refusal.op),
         in_quotes(refusal.module), in_quotes(refusal.place));
  }
}

}  // namespace

std::string print(const Trace& trace, Contents contents) {
  Printer printer(contents);
  printer.print_trace(trace);
  return printer.take();
}

std::string print(const Recording& recording, Contents contents) {
  Printer printer(contents);
  printer.print_recording(recording);
  return printer.take();
}

std::string words_of_geometry(const Tensor& tensor) {
  return fmt::format("{} [{}]", name_of(tensor.dtype), fmt::join(tensor.sizes, ", "));
}

std::string words_of_geometry(const Recording& recording, TensorId tensor) {
  return tensor == kNoTensor ? "undefined" : words_of_geometry(recording.tensors[tensor]);
}

std::string print_op(const Recording& recording, const Op& op) {
  return fmt::format("{}({})", operator_word(recording, op.op), join_values(op.inputs));
}

}  // namespace steptape::trace
