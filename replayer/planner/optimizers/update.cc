#include "replayer/planner/optimizers/update.h"

#include <algorithm>

#include "live/operators.h"
#include "live/values.h"
#include "trace/numbers.h"

namespace steptape::replayer {
namespace {

trace::Value default_of(const c10::Argument& argument) {
  if (!argument.default_value()) return {trace::Opaque{"no default"}};
  return live::value_of(
      *argument.default_value(), [](const at::Tensor&) { return trace::kNoTensor; },
      [](const at::Generator&) { return std::string(); });
}

}  // namespace

Update::Update(const trace::Recording& recording, Bindings& bindings,
               const trace::OptimizerLayout& layout, std::size_t group,
               const std::string& parameter, std::size_t first, std::int64_t earlier)
    : recording_(recording),
      bindings_(bindings),
      layout_(layout),
      group_path_(trace::group_path(layout.path, group)),
      state_path_(trace::state_path(layout.path, parameter)),
      parameter_(parameter),
      next_(first),
      earlier_(earlier),
      slots_(1),
      gradient_{0} {}

trace::Formula Update::hyperparameter(const std::string& name) {
  return trace::leaf(bindings_.leaf(trace::LeafKind::kHyperparameter, group_path_ + "." + name));
}

trace::Formula Update::step_count() {
  return trace::leaf(bindings_.leaf(trace::LeafKind::kStateNumber, state_path_ + ".step")) +
         trace::constant(static_cast<double>(earlier_ + 1));
}

bool Update::when(const trace::Formula& condition) {
  const bool taken = bindings_.recorded(condition) != 0;
  branches_.push_back({condition, taken});
  return taken;
}

Slot Update::known(trace::TensorId id) {
  slots_.emplace_back(id);
  return {slots_.size() - 1};
}

Slot Update::parameter() {
  const auto found = std::ranges::find(recording_.tracked, parameter_, &trace::Tracked::path);
  return known(found == recording_.tracked.end() ? trace::kNoTensor : found->tensor);
}

Slot Update::state(const std::string& key) {
  for (const trace::OptimizerStateEntry& entry : layout_.state) {
    if (entry.parameter != parameter_ || entry.key != key) continue;
    if (const auto* tensor = std::get_if<trace::TensorRef>(&entry.value.data)) {
      return known(tensor->id);
    }
  }
  fail(state_path_ + "." + key + " does not exist");
  return known(trace::kNoTensor);
}

Slot Update::decayed_gradient() {
  const trace::Formula weight_decay = hyperparameter("weight_decay");
  if (!when(weight_decay)) return gradient();
  return call("aten::add.Tensor", {gradient(), parameter(), weight_decay});
}

bool Update::take(Slot slot, const trace::Value& value) {
  const auto* tensor = std::get_if<trace::TensorRef>(&value.data);
  if (tensor == nullptr || tensor->id == trace::kNoTensor) return false;
  if (!slots_[slot.index]) slots_[slot.index] = tensor->id;
  return *slots_[slot.index] == tensor->id;
}

Slot Update::call(std::string_view name, const std::vector<Operand>& operands) {
  if (!matched()) return {0};
  const auto index = static_cast<trace::Index>(next_);
  if (next_ >= recording_.ops.size()) {
    fail("the step ends where " + layout_.type + " does `" + std::string(name) + "`");
    return {0};
  }
  const trace::Op& op = recording_.ops[next_];
  const trace::Operator& known_as = recording_.operator_of(op);
  const auto wrong = [&](const std::string& what) {
    fail("op " + std::to_string(index) + " is `" + known_as.full_name() + "`" + what + ", where " +
         layout_.type + " does `" + std::string(name) + "`");
    return Slot{0};
  };
  const auto handle = live::find_operator(known_as);
  if (known_as.full_name() != name || !handle || op.outputs.size() != 1) return wrong("");
  const auto& arguments = handle->schema().arguments();
  if (op.inputs.size() != arguments.size() || operands.size() > op.inputs.size()) return wrong("");
  for (std::size_t a = 0; a < op.inputs.size(); ++a) {
    if (a >= operands.size()) {
      if (op.inputs[a] != default_of(arguments[a])) return wrong(" with another option");
    } else if (const auto* slot = std::get_if<Slot>(&operands[a])) {
      if (!take(*slot, op.inputs[a])) return wrong(" on another tensor");
    } else if (trace::is_number(op.inputs[a])) {
      found_.push_back(
          {index, static_cast<trace::Index>(a), std::get<trace::Formula>(operands[a])});
    } else {
      return wrong(" without a number");
    }
  }
  ++next_;
  const auto* result = std::get_if<trace::TensorRef>(&op.outputs[0].data);
  return known(result == nullptr ? trace::kNoTensor : result->id);
}

void Update::fail(std::string problem) {
  if (problem_.empty()) problem_ = std::move(problem);
}

std::string Update::bits_problem() const {
  for (const Found& found : found_) {
    trace::ScalarSite site;
    site.op = found.op;
    site.argument = found.argument;
    if (bindings_.gives_recorded(found.formula, site)) continue;
    return "op " + std::to_string(found.op) + ", argument " + std::to_string(found.argument) +
           " is not what " + text_of(found.formula, recording_.leaves) + " gives";
  }
  return "";
}

void Update::require_same(const Update& other) {
  for (std::size_t i = 0; i < std::min(found_.size(), other.found_.size()); ++i) {
    if (found_[i].formula == other.found_[i].formula) continue;
    bindings_.require(trace::same_bits(found_[i].formula, other.found_[i].formula), true);
  }
}

void Update::commit() {
  for (const Branch& branch : branches_) bindings_.require(branch.condition, branch.taken);
  for (const Found& found : found_) {
    trace::ScalarSite site;
    site.op = found.op;
    site.argument = found.argument;
    bindings_.bind(site, found.formula);
  }
}

}  // namespace steptape::replayer
