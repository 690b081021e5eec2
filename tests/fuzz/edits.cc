#include "tests/fuzz/edits.h"

#include <array>

#include "steptape/error.h"
#include "tests/trace/made_up.h"
#include "tests/trace/samples.h"

namespace steptape::fuzz {
namespace {

using namespace trace;

constexpr std::array kPaths = {"", "inputs[0]", "model.m0.weight", "outside[0]", "results[0]", "x"};
constexpr std::array kModulePaths = {"", "model.m0", "model.x", "a[", "\""};

Index draw_op(const Recording& recording, Choices& choices) {
  return static_cast<Index>(choices.of(recording.ops.size()));
}

TensorId draw_tensor(const Recording& recording, Choices& choices) {
  const std::size_t drawn = choices.of(recording.tensors.size() + 1);
  return drawn == recording.tensors.size() ? kNoTensor : static_cast<TensorId>(drawn);
}

Value draw_value(const Recording& recording, Choices& choices) {
  switch (choices.of(7)) {
    case 0:
      return {TensorRef{draw_tensor(recording, choices)}};
    case 1:
      return {Real{static_cast<double>(choices.of(5)) * 0.25}};
    case 2:
      return {static_cast<std::int64_t>(choices.of(4))};
    case 3:
      return {choices.flip()};
    case 4:
      return {None()};
    case 5:
      return {IntList{static_cast<std::int64_t>(choices.of(3)), 2}};
    default:
      return {List{draw_value(recording, choices), {TensorRef{draw_tensor(recording, choices)}}}};
  }
}

void remove(Recording& recording, Choices& choices) {
  test::remove_op(recording, draw_op(recording, choices));
}

void copy(Recording& recording, Choices& choices) {
  const Index from = draw_op(recording, choices);
  test::insert_op(recording, draw_op(recording, choices), Op(recording.ops[from]));
}

void move(Recording& recording, Choices& choices) {
  const Index from = draw_op(recording, choices);
  test::move_op(recording, from, draw_op(recording, choices));
}

void change_argument(Recording& recording, Choices& choices) {
  Op& op = recording.ops[draw_op(recording, choices)];
  std::vector<Value>& values = choices.of(4) == 0 ? op.outputs : op.inputs;
  if (values.empty()) return;
  values[choices.of(values.size())] = draw_value(recording, choices);
}

void change_operator(Recording& recording, Choices& choices) {
  Op& op = recording.ops[draw_op(recording, choices)];
  if (choices.flip()) {
    op.op = static_cast<Index>(choices.of(recording.operators.size()));
  } else {
    op.op = test::add_operator(recording, choices.flip() ? "aten::a" : "aten::b", op.op);
    recording.operators.back().overload = choices.flip() ? "Tensor" : "";
  }
}

void change_place(Recording& recording, Choices& choices) {
  const Index at = draw_op(recording, choices);
  Op op = recording.ops[at];
  const std::size_t module = choices.of(recording.modules.size() + 1);
  op.module = module == recording.modules.size() ? kNone : static_cast<Index>(module);
  op.call = op.module == kNone ? 0 : static_cast<std::uint32_t>(choices.of(2) + 1);
  op.phase = choices.flip() ? Phase::kForward : Phase::kBackward;
  test::remove_op(recording, at);
  test::insert_op(recording, at, std::move(op));
}

/// Of a tensor that is used in many places, or of a copy that one op uses.
void change_tensor(Recording& recording, Choices& choices) {
  Op& op = recording.ops[draw_op(recording, choices)];
  TensorRef* const used = test::first_tensor(op);
  if (used == nullptr || used->id == kNoTensor) return;
  if (choices.flip()) used->id = test::copy_tensor(recording, used->id);
  Tensor& tensor = recording.tensors[used->id];
  switch (choices.of(5)) {
    case 0:
      tensor.dtype = DType::kInt32;
      break;
    case 1:
      tensor.offset = static_cast<std::int64_t>(choices.of(2));
      break;
    case 2:
      tensor.conj = !tensor.conj;
      break;
    case 3:
      tensor.buffer = static_cast<BufferId>(choices.of(recording.buffers.size()));
      break;
    default:
      if (tensor.sizes.empty()) return;
      tensor.sizes[0] = static_cast<std::int64_t>(choices.of(4));
  }
}

void change_buffer(Recording& recording, Choices& choices) {
  Buffer& buffer = recording.buffers[choices.of(recording.buffers.size())];
  switch (choices.of(4)) {
    case 0:
      buffer.path = kPaths[choices.of(kPaths.size())];
      break;
    case 1:
      buffer.role = static_cast<Role>(1 + choices.of(9));
      break;
    case 2:
      buffer.bytes = choices.of(3) * 64;
      break;
    default:
      recording.buffers.push_back(Buffer(buffer));
  }
}

/// A tensor of one number, as the host makes it.
void add_host_number(Recording& recording, Choices& choices) {
  Op& op = recording.ops[draw_op(recording, choices)];
  if (op.inputs.empty()) return;
  const float number = static_cast<float>(choices.of(3));
  Buffer buffer;
  buffer.bytes = sizeof(number);
  buffer.role = Role::kConstant;
  buffer.content = make_blob(&number, sizeof(number));
  recording.buffers.push_back(std::move(buffer));
  Tensor tensor;
  tensor.buffer = static_cast<BufferId>(recording.buffers.size() - 1);
  recording.tensors.push_back(tensor);
  op.inputs[choices.of(op.inputs.size())] = {
      TensorRef{static_cast<TensorId>(recording.tensors.size() - 1)}};
}

void add_formula(Recording& recording, Choices& choices) {
  recording.leaves.push_back({LeafKind::kHostValue, kPaths[choices.of(kPaths.size())]});
  recording.formulas.push_back(leaf(static_cast<Index>(recording.leaves.size() - 1)));
  ScalarSite site;
  site.formula = static_cast<Index>(recording.formulas.size() - 1);
  if (choices.flip()) {
    site.buffer = static_cast<BufferId>(choices.of(recording.buffers.size()));
    if (choices.flip()) site.item = static_cast<Index>(choices.of(3));
  } else {
    site.op = draw_op(recording, choices);
    site.argument = static_cast<Index>(choices.of(3));
  }
  recording.scalars.push_back(site);
}

void change_results(Recording& recording, Choices& choices) {
  if (recording.results.empty() || choices.flip()) {
    recording.results.push_back(draw_tensor(recording, choices));
  } else {
    recording.results.pop_back();
  }
}

void change_module(Recording& recording, Choices& choices) {
  if (recording.modules.empty()) return;
  Module& module = recording.modules[choices.of(recording.modules.size())];
  if (choices.flip()) {
    module.path = kModulePaths[choices.of(kModulePaths.size())];
  } else {
    module.training = !module.training;
  }
}

void change_hyperparameter(Recording& recording, Choices& choices) {
  if (recording.optimizers.empty()) return;
  OptimizerLayout& optimizer = recording.optimizers.front();
  if (optimizer.groups.empty() || choices.flip()) {
    optimizer.groups.emplace_back();
  } else if (!optimizer.groups[0].hyperparameters.empty()) {
    auto& hyperparameters = optimizer.groups[0].hyperparameters;
    hyperparameters[choices.of(hyperparameters.size())].value = draw_value(recording, choices);
  }
}

void add_module(Recording& recording, Choices& choices) {
  const Index at = draw_op(recording, choices);
  const std::vector<Value>& outputs = recording.ops[at].outputs;
  if (outputs.empty()) return;
  const auto* tensor = std::get_if<TensorRef>(&outputs[0].data);
  if (tensor == nullptr || tensor->id == kNoTensor) return;
  test::insert_module(recording, at, static_cast<int>(choices.of(3)));
}

constexpr std::array kEdits = {
    remove,          copy,          move,          change_argument,      change_place,
    change_operator, change_tensor, change_buffer, add_host_number,      add_formula,
    change_results,  add_module,    change_module, change_hyperparameter};

}  // namespace

Recording draw_recording(Choices& choices) {
  static const Recording train = test::train_recording();
  static const Recording numbers = test::numbers_trace().steps[0].recordings[0];
  switch (choices.of(4)) {
    case 0:
      return train;
    case 1:
      return numbers;
    default:
      return test::make_up({.seed = choices.of(256),
                            .modules = 1 + static_cast<int>(choices.of(4)),
                            .ops_a_module = static_cast<int>(choices.of(6)),
                            .batch = 4});
  }
}

void edit(Recording& recording, Choices& choices) {
  if (recording.ops.empty()) return;
  Recording edited = recording;
  kEdits[choices.of(kEdits.size())](edited, choices);
  try {
    validate(edited);
    recording = std::move(edited);
  } catch (const Error&) {
  }
}

}  // namespace steptape::fuzz
