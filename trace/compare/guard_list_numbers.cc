#include <fmt/format.h>

#include <cmath>
#include <unordered_map>
#include <unordered_set>

#include "trace/compare/guard_list_parts.h"
#include "trace/numbers.h"
#include "trace/text/text.h"

namespace steptape::trace {
namespace {

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

bool waits_for_read(const Recording& recording, const Formula& formula) {
  for (const Node& node : formula.nodes) {
    if (node.operation == Operation::kLeaf &&
        recording.leaves[node.leaf].kind == LeafKind::kHostRead) {
      return true;
    }
  }
  return false;
}

/// Predicates that wait for a read of the same run, or those that do not.
void add_predicates(GuardList& list, const Recording& recording, bool waiting) {
  for (const Predicate& predicate : recording.predicates) {
    const Formula& formula = recording.formulas[predicate.formula];
    if (waits_for_read(recording, formula) != waiting) continue;
    list.begin(text_of(formula, recording.leaves));
    list.add(GuardKind::kPredicate, "", predicate.is_nonzero ? "not zero" : "zero");
  }
}

}  // namespace

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

void add_reads(GuardList& list, const Recording& recording) {
  for (const HostRead& read : recording.reads) {
    if (read.use != ReadUse::kChecked) continue;
    const std::vector<Value>& outputs = recording.ops[read.op].outputs;
    list.begin(read_path(read.op));
    list.add(GuardKind::kHostRead, "", outputs.empty() ? "none" : words_of(outputs.front()));
  }
  add_predicates(list, recording, /*waiting=*/true);
}

}  // namespace steptape::trace
