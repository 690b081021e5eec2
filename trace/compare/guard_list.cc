#include "trace/compare/guard_list.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "trace/numbers.h"
#include "trace/operators.h"
#include "trace/path.h"
#include "trace/text/text.h"

namespace steptape::trace {
namespace {

/// Guards in the making.
class GuardList {
 public:
  /// What the guards that follow look at.
  void begin(std::string object, std::span<const std::string> aliases = {}) {
    object_ = std::move(object);
    aliases_ = aliases;
  }
  /// A guard of it, whose path goes on with `suffix`.
  void add(GuardKind kind, std::string_view suffix, std::string expected,
           std::string also_holds = {});
  void append(GuardList other);
  std::vector<Guard> take() { return std::move(guards_); }

 private:
  std::string object_;
  std::span<const std::string> aliases_;
  std::vector<Guard> guards_;
};

/// Buffers that a guard has met already, by id: another tensor on one must lie in the same memory.
using Met = std::vector<bool>;

std::string words_of(bool value) { return value ? "true" : "false"; }

void GuardList::add(GuardKind kind, std::string_view suffix, std::string expected,
                    std::string also_holds) {
  Guard& guard = guards_.emplace_back();
  guard.kind = kind;
  guard.object = object_;
  guard.path = object_ + std::string(suffix);
  guard.expected = std::move(expected);
  guard.also_holds = std::move(also_holds);
  for (const std::string& alias : aliases_) guard.aliases.push_back(alias + std::string(suffix));
}

void GuardList::append(GuardList other) {
  guards_.insert(guards_.end(), std::make_move_iterator(other.guards_.begin()),
                 std::make_move_iterator(other.guards_.end()));
}

/// What is registered with modules, by the module's path.
using Registered = std::unordered_map<std::string, std::vector<const Tracked*>>;

Registered registered_with_modules(const Recording& recording) {
  Registered registered;
  for (const Tracked& tracked : recording.tracked) {
    if (tracked.role != Role::kParameter && tracked.role != Role::kModuleBuffer) continue;
    registered[std::string(parent_path(tracked.path))].push_back(&tracked);
  }
  return registered;
}

void add_registered(GuardList& list, const Tracked& tracked) {
  const bool is_parameter = tracked.role == Role::kParameter;
  list.begin(tracked.path, tracked.aliases);
  list.add(is_parameter ? GuardKind::kParameters : GuardKind::kModuleBuffers, "",
           is_parameter ? "the parameter registered when it was recorded"
                        : "the module buffer registered when it was recorded");
}

void add_module_guards(GuardList& list, const Recording& recording) {
  const Registered with = registered_with_modules(recording);
  std::unordered_set<std::string_view> paths;
  for (const Module& module : recording.modules) paths.insert(module.path);
  for (const Module& module : recording.modules) {
    list.begin(module.path, module.aliases);
    if (paths.contains(parent_path(module.path))) {
      list.add(GuardKind::kSubModules, "", "the sub-module registered when it was recorded");
    }
    list.add(GuardKind::kTraining, ".training", words_of(module.training));
    for (const NamedValue& option : module.options) {
      list.add(GuardKind::kModuleOption, "." + option.name, words_of(option.value));
    }
    const auto registered = with.find(module.path);
    if (registered == with.end()) continue;
    for (const Tracked* tracked : registered->second) add_registered(list, *tracked);
  }
}

/// Paths of the leaves of one kind.
std::unordered_set<std::string> followed(const Recording& recording, LeafKind kind) {
  std::unordered_set<std::string> paths;
  for (const Leaf& leaf : recording.leaves) {
    if (leaf.kind == kind) paths.insert(leaf.path);
  }
  return paths;
}

/// What may stand for `value` where formulas follow it.
std::string any_like(const Value& value) {
  if (std::holds_alternative<bool>(value.data)) return "any bool";
  if (std::holds_alternative<std::int64_t>(value.data)) return "any integer";
  return std::isfinite(number_of(value)) ? "any finite real" : "any real that is not finite";
}

/// What may stand for a hyperparameter. Options of C++ are numbers of fixed types, their flags too;
/// in Python a value may become one of another type, and a flag is followed by no formula.
std::string any_instead(const OptimizerLayout& optimizer, const Value& value) {
  if (!optimizer.has_formulas || !is_number(value)) return "";
  if (optimizer.type.find("::") != std::string::npos) return "any number";
  if (std::holds_alternative<bool>(value.data)) return "";
  return std::holds_alternative<std::int64_t>(value.data) ? "any integer" : "any real";
}

void add_groups(GuardList& list, const OptimizerLayout& optimizer) {
  list.add(GuardKind::kParameterGroups, ".param_groups.size",
           std::to_string(optimizer.groups.size()));
  for (std::size_t g = 0; g < optimizer.groups.size(); ++g) {
    const ParameterGroup& group = optimizer.groups[g];
    const std::string suffix = fmt::format(".param_groups[{}]", g);
    list.add(
        GuardKind::kParameterGroups, suffix + ".params",
        fmt::format("the parameters it held when it was recorded ({})", group.parameters.size()));
    for (std::size_t k = 0; k < group.parameters.size(); ++k) {
      list.add(GuardKind::kParameterGroups, fmt::format("{}.params[{}]", suffix, k),
               group.parameters[k]);
    }
    for (const NamedValue& named : group.hyperparameters) {
      for_each_item(suffix + "." + named.name, named.value,
                    [&](const std::string& path, const Value& value) {
                      list.add(GuardKind::kHyperparameter, path, words_of(value),
                               any_instead(optimizer, value));
                    });
    }
  }
}

void add_state(GuardList& list, const OptimizerLayout& optimizer) {
  std::vector<std::string> parameters;
  std::unordered_map<std::string, std::string> keys;
  for (const OptimizerStateEntry& entry : optimizer.state) {
    std::string& words = keys[entry.parameter];
    if (words.empty()) parameters.push_back(entry.parameter);
    words += (words.empty() ? "" : ", ") + entry.key;
  }
  list.add(GuardKind::kOptimizerState, ".state.size", std::to_string(parameters.size()));
  for (const std::string& parameter : parameters) {
    list.add(GuardKind::kOptimizerState, state_path("", parameter),
             fmt::format("the tensors it held when it was recorded ({})", keys[parameter]));
  }
}

/// Predicates that wait for a read of the same run, or those that do not.
void add_predicates(GuardList& list, const Recording& recording, bool waiting) {
  for (const Predicate& predicate : recording.predicates) {
    const Formula& formula = recording.formulas[predicate.formula];
    if (waits_for_read(formula, recording.leaves) != waiting) continue;
    list.begin(text_of(formula, recording.leaves));
    list.add(GuardKind::kPredicate, "", predicate.is_nonzero ? "not zero" : "zero");
  }
}

/// Those that are not tensors.
void add_number_inputs(GuardList& list, const Recording& recording) {
  const auto paths = followed(recording, LeafKind::kArgument);
  for (const Input& input : recording.inputs) {
    if (std::holds_alternative<TensorRef>(input.value.data)) continue;
    list.begin(input.path);
    list.add(GuardKind::kArgument, "", words_of(input.value),
             paths.contains(input.path) ? any_like(input.value) : "");
  }
}

void add_ambient(GuardList& list, const Recording& recording) {
  for (const Fact& fact : recording.ambient) {
    list.begin("ambient." + fact.name);
    list.add(GuardKind::kAmbient, "", fact.value);
  }
}

void add_declared(GuardList& list, const Recording& recording) {
  const auto paths = followed(recording, LeafKind::kHostValue);
  for (const NamedValue& value : recording.host_values) {
    if (value.value == Value()) continue;
    list.begin(value.name);
    list.add(GuardKind::kHostValue, "", words_of(value.value),
             paths.contains(value.name) ? any_like(value.value) : "");
  }
  for (const NamedValue& fact : recording.facts) {
    list.begin(fact.name);
    list.add(GuardKind::kFact, "", words_of(fact.value));
  }
}

void add_optimizers(GuardList& list, const Recording& recording) {
  for (const OptimizerLayout& optimizer : recording.optimizers) {
    list.begin(optimizer.path);
    add_groups(list, optimizer);
    add_state(list, optimizer);
  }
}

void add_predicates(GuardList& list, const Recording& recording) {
  add_predicates(list, recording, /*waiting=*/false);
}

/// What is checked in mid-run: values that the step reads, and predicates that wait for one.
void add_reads(GuardList& list, const Recording& recording) {
  for (const HostRead& read : recording.reads) {
    if (read.use != ReadUse::kChecked) continue;
    const std::vector<Value>& outputs = recording.ops[read.op].outputs;
    list.begin(read_path(read.op));
    list.add(GuardKind::kHostRead, "", outputs.empty() ? "none" : words_of(outputs.front()));
  }
  add_predicates(list, recording, /*waiting=*/true);
}

std::string on_or_off(bool value) { return value ? "on" : "off"; }

void add_geometry(GuardList& list, const Recording& recording, const Tensor& tensor) {
  list.add(GuardKind::kTensorKind, "", "a plain tensor");
  list.add(GuardKind::kDevice, ".device", text_of(recording.buffers[tensor.buffer].device));
  list.add(GuardKind::kDtype, ".dtype", std::string(name_of(tensor.dtype)));
  list.add(GuardKind::kShape, ".dim", std::to_string(tensor.sizes.size()));
  for (std::size_t d = 0; d < tensor.sizes.size(); ++d) {
    list.add(GuardKind::kShape, fmt::format(".size({})", d), std::to_string(tensor.sizes[d]));
  }
  for (std::size_t d = 0; d < tensor.strides.size(); ++d) {
    list.add(GuardKind::kStride, fmt::format(".stride({})", d), std::to_string(tensor.strides[d]));
  }
  list.add(GuardKind::kTensorFlags, ".is_conj", on_or_off(tensor.conj));
  list.add(GuardKind::kTensorFlags, ".is_neg", on_or_off(tensor.neg));
  list.add(GuardKind::kTensorFlags, ".is_wrapped_number", on_or_off(tensor.wrapped_number));
}

void add_alignment(GuardList& list, const Buffer& buffer) {
  if (buffer.bytes == 0) return;
  list.add(GuardKind::kAlignment, ".data_ptr modulo 64", std::to_string(buffer.address_mod_64));
}

/// Marks the buffer as met, and says whether a tensor before was in its memory.
bool was_met(const Recording& recording, BufferId buffer, Met& met) {
  const bool before = met[buffer];
  met[buffer] = true;
  return before && recording.buffers[buffer].bytes != 0;
}

bool inference_mode_is_on(const Recording& recording) {
  const auto mode = std::ranges::find(recording.ambient, "inference_mode", &Fact::name);
  return mode != recording.ambient.end() && mode->value == "on";
}

void add_input(GuardList& list, const Recording& recording, const Input& input,
               const Tensor& tensor, Met& met) {
  const Buffer& buffer = recording.buffers[tensor.buffer];
  list.add(GuardKind::kPresence, "", "a tensor");
  if (!input.same_as.empty()) list.add(GuardKind::kArgument, "", "the tensor " + input.same_as);
  add_geometry(list, recording, tensor);
  list.add(GuardKind::kRequiresGrad, ".requires_grad", words_of(input.requires_grad));
  if (input.may_have_grad()) list.add(GuardKind::kPresence, ".grad", "None");
  if (!inference_mode_is_on(recording)) {
    list.add(GuardKind::kInference, ".is_inference", "false");
  }
  if (was_met(recording, tensor.buffer, met)) {
    list.add(GuardKind::kMemory, ".data_ptr", "within the memory of " + buffer.path);
  }
  add_alignment(list, buffer);
}

/// Buffers that were there before the step, of those that it uses.
std::vector<bool> given_buffers(const Recording& recording) {
  std::vector<bool> given(recording.buffers.size(), false);
  std::vector<bool> seen(recording.buffers.size(), false);
  const auto see = [&](TensorId id, bool is_given) {
    if (id == kNoTensor) return;
    const BufferId buffer = recording.tensors[id].buffer;
    if (!seen[buffer]) given[buffer] = is_given;
    seen[buffer] = true;
  };
  const auto see_all = [&](const Value& value, bool is_given) {
    for_each_tensor(value, [&](TensorId id) { see(id, is_given); });
  };
  for (const Input& input : recording.inputs) see_all(input.value, true);
  for (const Tracked& tracked : recording.tracked) see(tracked.tensor, true);
  for (const Op& op : recording.ops) {
    for (const Value& value : op.inputs) see_all(value, true);
    for (const Value& value : op.outputs) see_all(value, false);
  }
  for (const TensorId result : recording.results) see(result, true);
  return given;
}

std::vector<bool> written_buffers(const Recording& recording) {
  std::vector<bool> written(recording.buffers.size(), false);
  for (const OpUse& use : uses_of(recording)) {
    for (const TensorId id : use.writes) written[recording.tensors[id].buffer] = true;
  }
  return written;
}

void add_outside(GuardList& list, const Recording& recording, const std::vector<bool>& given) {
  for (BufferId id = 0; id < recording.buffers.size(); ++id) {
    const Buffer& buffer = recording.buffers[id];
    if (!given[id] || !is_outside_path(buffer.path)) continue;
    list.begin(buffer.path);
    list.add(GuardKind::kAlive, "", "alive");
    list.add(GuardKind::kMemory, ".storage().nbytes", std::to_string(buffer.bytes));
    add_alignment(list, buffer);
  }
}

void add_overlap(GuardList& list, const Recording& recording, const std::vector<bool>& given) {
  const std::vector<bool> written = written_buffers(recording);
  const auto is_written = [&](BufferId id) { return given[id] && written[id]; };
  std::size_t others = 0;
  for (BufferId id = 0; id < recording.buffers.size(); ++id) others += is_written(id) ? 1 : 0;
  for (BufferId id = 0; id < recording.buffers.size(); ++id) {
    const Buffer& buffer = recording.buffers[id];
    if (buffer.role != Role::kInput || !given[id]) continue;
    if (others == (is_written(id) ? 1 : 0)) continue;
    list.begin(buffer.path);
    list.add(GuardKind::kOverlap, "", "memory of its own");
  }
}

void add_tracked(GuardList& list, const Recording& recording, Met& met) {
  for (const Tracked& tracked : recording.tracked) {
    list.begin(tracked.path, tracked.aliases);
    const bool is_gradient = tracked.role == Role::kGradient;
    const bool is_there = tracked.tensor != kNoTensor;
    if (is_gradient) list.add(GuardKind::kPresence, "", is_there ? "defined" : "None");
    if (!is_gradient) list.add(GuardKind::kAlive, "", "alive");
    if (!is_there) continue;
    const Tensor& tensor = recording.tensors[tracked.tensor];
    const Buffer& buffer = recording.buffers[tensor.buffer];
    add_geometry(list, recording, tensor);
    list.add(GuardKind::kOffset, ".storage_offset", std::to_string(tensor.offset));
    list.add(GuardKind::kRequiresGrad, ".requires_grad", words_of(tracked.requires_grad));
    list.add(GuardKind::kHooks, " (hooks)", "those of the recording");
    list.add(GuardKind::kMemory, ".storage().nbytes", std::to_string(buffer.bytes));
    add_alignment(list, buffer);
    if (was_met(recording, tensor.buffer, met)) {
      list.add(GuardKind::kMemory, "", "in one memory with " + buffer.path);
    }
  }
}

void add_inputs(GuardList& list, const Recording& recording, Met& met) {
  list.begin("inputs");
  list.add(GuardKind::kArgumentCount, ".size", std::to_string(recording.inputs.size()));
  for (const Input& input : recording.inputs) {
    const auto* tensor = std::get_if<TensorRef>(&input.value.data);
    if (tensor == nullptr) continue;
    list.begin(input.path);
    if (tensor->id == kNoTensor) {
      list.add(GuardKind::kPresence, "", "undefined");
    } else {
      add_input(list, recording, input, recording.tensors[tensor->id], met);
    }
  }
  add_number_inputs(list, recording);
}

/// Tensors outside the step that nobody tracked, and inputs that may not lie over memory that the
/// step writes.
void add_memory(GuardList& list, const Recording& recording) {
  const std::vector<bool> given = given_buffers(recording);
  add_outside(list, recording, given);
  add_overlap(list, recording, given);
}

}  // namespace

std::vector<Guard> guards_of(const Recording& recording) {
  // an input that lies in a tracked tensor must stay there: those are met first
  Met met(recording.buffers.size(), false);
  GuardList tracked;
  add_tracked(tracked, recording, met);
  GuardList list;
  add_inputs(list, recording, met);
  add_declared(list, recording);
  add_ambient(list, recording);
  add_module_guards(list, recording);
  add_optimizers(list, recording);
  list.append(std::move(tracked));
  add_predicates(list, recording);
  add_memory(list, recording);
  add_reads(list, recording);
  return list.take();
}

}  // namespace steptape::trace
