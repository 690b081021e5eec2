#include "replayer/planner/optimizers/update.h"

#include <algorithm>
#include <array>

#include "live/operators.h"
#include "live/values.h"
#include "replayer/planner/optimizers/optimizers.h"
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
  const trace::TensorId tensor = tensor_in(value);
  if (tensor == trace::kNoTensor) return false;
  if (!slots_[slot.index]) slots_[slot.index] = tensor;
  return *slots_[slot.index] == tensor;
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
      Found& found = found_.emplace_back();
      found.site.op = index;
      found.site.argument = static_cast<trace::Index>(a);
      found.formula = std::get<trace::Formula>(operands[a]);
    } else {
      return wrong(" without a number");
    }
  }
  ++next_;
  return known(tensor_in(op.outputs[0]));
}

void Update::fail(std::string problem) {
  if (problem_.empty()) problem_ = std::move(problem);
}

std::string Update::bits_problem() const {
  for (const Found& found : found_) {
    if (bindings_.gives_recorded(found.formula, found.site)) continue;
    return "op " + std::to_string(found.site.op) + ", argument " +
           std::to_string(found.site.argument) + " is not what " +
           text_of(found.formula, recording_.leaves) + " gives";
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
  for (const Found& found : found_) bindings_.bind(found.site, found.formula);
}

namespace {

using trace::constant;

// torch/csrc/api/src/optim/adagrad.cpp, dense gradients.
void match_adagrad(Update& update) {
  const Slot gradient = update.decayed_gradient();
  const Slot sum =
      update.call("aten::addcmul_", {update.state("sum"), gradient, gradient, constant(1)});
  Slot root = update.call("aten::sqrt", {sum});
  root = update.call("aten::add_.Scalar", {root, update.hyperparameter("eps")});
  const trace::Formula decayed =
      update.hyperparameter("lr") /
      (constant(1) + (update.step_count() - constant(1)) * update.hyperparameter("lr_decay"));
  update.call("aten::addcdiv_", {update.parameter(), gradient, root, -decayed});
}

/// What Adam and AdamW share: moments, bias corrections, and the parameter's change by `gradient`.
void match_moments(Update& update, Slot gradient) {
  const trace::Formula beta1 = update.hyperparameter("betas[0]");
  const trace::Formula beta2 = update.hyperparameter("betas[1]");
  const trace::Formula t = update.step_count();
  Slot mean = update.call("aten::mul_.Scalar", {update.state("exp_avg"), beta1});
  mean = update.call("aten::add_.Tensor", {mean, gradient, constant(1) - beta1});
  Slot square = update.call("aten::mul_.Scalar", {update.state("exp_avg_sq"), beta2});
  square = update.call("aten::addcmul_", {square, gradient, gradient, constant(1) - beta2});
  if (update.when(update.hyperparameter("amsgrad"))) {
    const Slot largest = update.state("max_exp_avg_sq");
    square = update.call("aten::maximum.out", {square, largest, largest});
  }
  Slot root = update.call("aten::sqrt", {square});
  root = update.call("aten::div.Scalar",
                     {root, trace::square_root(constant(1) - trace::power(beta2, t))});
  root = update.call("aten::add_.Scalar", {root, update.hyperparameter("eps")});
  const trace::Formula size = update.hyperparameter("lr") / (constant(1) - trace::power(beta1, t));
  update.call("aten::addcdiv_", {update.parameter(), mean, root, -size});
}

// torch/csrc/api/src/optim/adam.cpp
void match_adam(Update& update) { match_moments(update, update.decayed_gradient()); }

// torch/csrc/api/src/optim/adamw.cpp
void match_adamw(Update& update) {
  if (update.when(update.hyperparameter("weight_decay"))) {
    const trace::Formula shrink =
        constant(1) - update.hyperparameter("lr") * update.hyperparameter("weight_decay");
    update.call("aten::mul_.Scalar", {update.parameter(), shrink});
  }
  match_moments(update, update.gradient());
}

// torch/csrc/api/src/optim/rmsprop.cpp; it asks `momentum > 0`, not `!= 0`.
void match_rmsprop(Update& update) {
  const trace::Formula alpha = update.hyperparameter("alpha");
  const trace::Formula momentum = update.hyperparameter("momentum");
  const trace::Formula lr = update.hyperparameter("lr");
  const Slot gradient = update.decayed_gradient();
  Slot square = update.call("aten::mul_.Scalar", {update.state("square_avg"), alpha});
  square = update.call("aten::addcmul_", {square, gradient, gradient, constant(1) - alpha});
  Slot root = square;
  if (update.when(update.hyperparameter("centered"))) {
    Slot mean = update.call("aten::mul_.Scalar", {update.state("grad_avg"), alpha});
    mean = update.call("aten::add_.Tensor", {mean, gradient, constant(1) - alpha});
    root = update.call("aten::addcmul", {square, mean, mean, constant(-1)});
    root = update.call("aten::sqrt_", {root});
  } else {
    root = update.call("aten::sqrt", {square});
  }
  root = update.call("aten::add_.Scalar", {root, update.hyperparameter("eps")});
  if (update.when(trace::maximum(momentum, constant(0)))) {
    Slot buffer = update.call("aten::mul_.Scalar", {update.state("momentum_buffer"), momentum});
    buffer = update.call("aten::addcdiv_", {buffer, gradient, root});
    update.call("aten::add_.Tensor", {update.parameter(), buffer, -lr});
  } else {
    update.call("aten::addcdiv_", {update.parameter(), gradient, root, -lr});
  }
}

// torch/csrc/api/src/optim/sgd.cpp. The first step with momentum clones the gradient into the
// buffer instead; it creates state, so it is a warm-up and never planned from.
void match_sgd(Update& update) {
  const trace::Formula momentum = update.hyperparameter("momentum");
  Slot change = update.decayed_gradient();
  if (update.when(momentum)) {
    Slot buffer = update.state("momentum_buffer");
    buffer = update.call("aten::mul_.Scalar", {buffer, momentum});
    buffer = update.call("aten::add_.Tensor",
                         {buffer, change, constant(1) - update.hyperparameter("dampening")});
    change = update.when(update.hyperparameter("nesterov"))
                 ? update.call("aten::add.Tensor", {change, buffer, momentum})
                 : buffer;
  }
  update.call("aten::add_.Tensor",
              {update.parameter(), change, constant(-1) * update.hyperparameter("lr")});
}

constexpr std::array kLowerings = {
    Lowering{"torch::optim::SGD", &match_sgd, false},
    Lowering{"torch::optim::Adam", &match_adam},
    Lowering{"torch::optim::AdamW", &match_adamw},
    Lowering{"torch::optim::RMSprop", &match_rmsprop},
    Lowering{"torch::optim::Adagrad", &match_adagrad},
};

}  // namespace

const Lowering* lowering_of(const std::string& type) {
  const auto* found = std::ranges::find(kLowerings, type, &Lowering::type);
  return found == kLowerings.end() ? nullptr : found;
}

}  // namespace steptape::replayer
