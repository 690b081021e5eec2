#include "replayer/planner/optimizers/fused.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include <algorithm>
#include <string>
#include <utility>

#include "live/operators.h"
#include "replayer/planner/numbers/bindings.h"
#include "replayer/planner/optimizers/optimizers.h"
#include "trace/numbers.h"

namespace steptape::replayer {
namespace {

/// One argument of a fused kernel, in the order of its schema.
struct Operand {
  enum class Kind {
    kParameters,
    kGradients,
    kState,          ///< of every parameter, by the key `name`
    kOptionalState,  ///< the same, or an empty list where the optimizer keeps none
    kStepCounts,     ///< float32 tensors of one element
    kNumber,         ///< a hyperparameter by `name`
    kFlag,           ///< the same, a bool
    kFalse,
    kNone,
  } kind;
  const char* name = "";
};

/// Not SGD: its update is one or two ops, which a replay does in one pass, and LibTorch's kernel
/// takes 1.1 to 1.6 times as long (docs/performance.md). `maximize` is no option of LibTorch's C++
/// optimizers; a first step is a warm-up, never planned from.
struct Kernel {
  const char* type;  ///< OptimizerLayout::type
  const char* name;
  std::vector<Operand> operands;
};

using enum Operand::Kind;

const std::vector<Operand> kAdamOperands = {{kParameters},
                                            {kGradients},
                                            {kState, "exp_avg"},
                                            {kState, "exp_avg_sq"},
                                            {kOptionalState, "max_exp_avg_sq"},
                                            {kStepCounts},
                                            {kNumber, "lr"},
                                            {kNumber, "betas[0]"},
                                            {kNumber, "betas[1]"},
                                            {kNumber, "weight_decay"},
                                            {kNumber, "eps"},
                                            {kFlag, "amsgrad"},
                                            {kFalse},
                                            {kNone},
                                            {kNone}};

const std::vector<Kernel> kKernels = {
    {"torch::optim::Adam", "aten::_fused_adam_", kAdamOperands},
    {"torch::optim::AdamW", "aten::_fused_adamw_", kAdamOperands},
    {"torch::optim::Adagrad",
     "aten::_fused_adagrad_",
     {{kParameters},
      {kGradients},
      {kState, "sum"},
      {kStepCounts},
      {kNumber, "lr"},
      {kNumber, "lr_decay"},
      {kNumber, "weight_decay"},
      {kNumber, "eps"},
      {kFalse},
      {kNone},
      {kNone}}},
};

const Kernel* kernel_of(const std::string& type) {
  for (const Kernel& kernel : kKernels) {
    if (type == kernel.type) return &kernel;
  }
  return nullptr;
}

/// The updates of one parameter group, in order.
struct Group {
  const trace::OptimizerLayout* layout;
  std::size_t group;
  std::vector<MatchedUpdate> updates;

  std::size_t first() const { return updates.front().first; }
  std::size_t end() const { return updates.back().end; }
};

class Fusion {
 public:
  explicit Fusion(const trace::Recording& recording) : before_(recording), recorded_(recording) {
    fused_.recording = recording;
    fused_.recording.ops.clear();
    fused_.recording.op_digests.clear();
    fused_.recording.scalars.clear();
  }

  std::optional<Fused> run() {
    std::vector<Group> groups = groups_to_fuse();
    if (groups.empty()) return std::nullopt;
    std::vector<trace::Index> position(before_.ops.size() + 1, trace::kNone);
    std::size_t next = 0;
    for (const Group& group : groups) {
      copy_ops(next, group.first(), position);
      add_kernel(group);
      next = group.end();
    }
    copy_ops(next, before_.ops.size(), position);
    position.back() = static_cast<trace::Index>(fused_.recording.ops.size());
    renumber(position);
    return std::move(fused_);
  }

 private:
  std::vector<Group> groups_to_fuse() const {
    std::vector<Group> groups;
    for (const MatchedUpdate& update : updates_of(before_)) {
      const trace::OptimizerLayout& layout = before_.optimizers[update.layout];
      const bool goes_on = !groups.empty() && groups.back().layout == &layout &&
                           groups.back().group == update.group &&
                           groups.back().end() == update.first;
      if (!goes_on) groups.push_back({&layout, update.group, {}});
      groups.back().updates.push_back(update);
    }
    std::erase_if(groups, [&](const Group& group) { return !can_fuse(group); });
    return groups;
  }

  bool can_fuse(const Group& group) const {
    const Kernel* kernel = kernel_of(group.layout->type);
    if (kernel == nullptr || !has_kernel(*kernel)) return false;
    const trace::DType dtype = before_.tensors[parameter_of(group.updates[0])].dtype;
    if (dtype != trace::DType::kFloat32 && dtype != trace::DType::kFloat64) return false;
    for (const MatchedUpdate& update : group.updates) {
      const trace::Tensor& parameter = before_.tensors[parameter_of(update)];
      const trace::Tensor& gradient = before_.tensors[update.gradient];
      if (parameter.dtype != dtype || gradient.dtype != dtype) return false;
      if (device_of(update).kind != trace::DeviceKind::kCpu) return false;
      if (parameter.strides != gradient.strides || update.earlier != 0) return false;
    }
    return true;
  }

  static bool has_kernel(const Kernel& kernel) {
    const auto op = live::find_operator({kernel.name, "", ""});
    return op && op->hasKernelForDispatchKey(c10::DispatchKey::CPU);
  }

  const trace::Device& device_of(const MatchedUpdate& update) const {
    return before_.buffers[before_.tensors[parameter_of(update)].buffer].device;
  }

  trace::TensorId parameter_of(const MatchedUpdate& update) const {
    return std::ranges::find(before_.tracked, update.parameter, &trace::Tracked::path)->tensor;
  }

  trace::TensorId state_of(const Group& group, const MatchedUpdate& update, const char* key) const {
    for (const trace::OptimizerStateEntry& entry : group.layout->state) {
      if (entry.parameter != update.parameter || entry.key != key) continue;
      if (const auto* tensor = std::get_if<trace::TensorRef>(&entry.value.data)) return tensor->id;
    }
    return trace::kNoTensor;
  }

  void copy_ops(std::size_t first, std::size_t end, std::vector<trace::Index>& position) {
    for (std::size_t i = first; i < end; ++i) {
      position[i] = static_cast<trace::Index>(fused_.recording.ops.size());
      fused_.recording.ops.push_back(before_.ops[i]);
    }
  }

  void add_kernel(const Group& group) {
    const Kernel& kernel = *kernel_of(group.layout->type);
    trace::Op op = before_.ops[group.first()];
    op.op = operator_index(kernel.name);
    op.inputs.clear();
    op.outputs.clear();
    const auto index = static_cast<trace::Index>(fused_.recording.ops.size());
    for (const Operand& operand : kernel.operands) {
      const auto argument = static_cast<trace::Index>(op.inputs.size());
      op.inputs.push_back(value_of(operand, group));
      if (operand.kind != kNumber) continue;
      numbers_.push_back({{index, argument, trace::kNone, trace::kNone, trace::kNone},
                          hyperparameter_path(group, operand.name)});
    }
    fused_.recording.ops.push_back(std::move(op));
  }

  static std::string hyperparameter_path(const Group& group, const std::string& name) {
    return trace::group_path(group.layout->path, group.group) + "." + name;
  }

  trace::Value value_of(const Operand& operand, const Group& group) {
    switch (operand.kind) {
      case kParameters:
        return written(group, [&](const MatchedUpdate& update) { return parameter_of(update); });
      case kGradients:
        return list(group, [](const MatchedUpdate& update) { return update.gradient; });
      case kState:
      case kOptionalState:
        if (operand.kind == kOptionalState &&
            state_of(group, group.updates[0], operand.name) == trace::kNoTensor) {
          return {trace::List{}};
        }
        return written(group, [&](const MatchedUpdate& update) {
          return state_of(group, update, operand.name);
        });
      case kStepCounts:
        return list(group,
                    [&](const MatchedUpdate& update) { return add_step_count(group, update); });
      case kNumber:
        return {trace::Real{recorded(hyperparameter_path(group, operand.name))}};
      case kFlag:
        return {recorded(hyperparameter_path(group, operand.name)) != 0};
      case kFalse:
        return {false};
      case kNone:
        break;
    }
    return {trace::None{}};
  }

  template <typename Tensor>
  static trace::Value list(const Group& group, Tensor&& tensor) {
    trace::List values;
    for (const MatchedUpdate& update : group.updates) {
      values.push_back({trace::TensorRef{tensor(update)}});
    }
    return {std::move(values)};
  }

  template <typename Tensor>
  trace::Value written(const Group& group, Tensor&& tensor) {
    return list(group, [&](const MatchedUpdate& update) {
      const trace::TensorId id = tensor(update);
      if (id != trace::kNoTensor) fused_.approximate.push_back(before_.tensors[id].buffer);
      return id;
    });
  }

  static std::string count_path(const Group& group, const MatchedUpdate& update) {
    return trace::state_path(group.layout->path, update.parameter) + ".step";
  }

  /// A tensor of one element that holds the count, as the kernel wants it: computed before each
  /// run.
  trace::TensorId add_step_count(const Group& group, const MatchedUpdate& update) {
    const std::string path = count_path(group, update);
    const auto count = static_cast<float>(recorded(path) + 1);
    trace::Buffer buffer;
    buffer.bytes = sizeof count;
    buffer.role = trace::Role::kConstant;
    buffer.content = trace::make_blob(&count, sizeof count);
    trace::Recording& recording = fused_.recording;
    trace::Tensor tensor;
    tensor.buffer = static_cast<trace::BufferId>(recording.buffers.size());
    tensor.dtype = trace::DType::kFloat32;
    counts_.push_back({tensor.buffer, path});
    recording.buffers.push_back(std::move(buffer));
    recording.tensors.push_back(std::move(tensor));
    return static_cast<trace::TensorId>(recording.tensors.size() - 1);
  }

  double recorded(const std::string& path) const { return recorded_[path]; }

  trace::Index operator_index(const char* name) {
    auto& operators = fused_.recording.operators;
    const auto known = std::ranges::find_if(operators, [&](const trace::Operator& op) {
      return op.name == name && op.overload.empty();
    });
    if (known != operators.end()) return static_cast<trace::Index>(known - operators.begin());
    operators.push_back(live::describe(*live::find_operator({name, "", ""})));
    return static_cast<trace::Index>(operators.size() - 1);
  }

  void renumber(const std::vector<trace::Index>& position) {
    trace::Recording& recording = fused_.recording;
    for (trace::Leaf& leaf : recording.leaves) {
      if (leaf.kind != trace::LeafKind::kHostRead) continue;
      const auto op = static_cast<std::size_t>(std::stoull(leaf.path.substr(4)));
      leaf.path = trace::read_path(position[op]);
    }
    for (trace::ScalarSite site : before_.scalars) {
      if (site.op != trace::kNone) site.op = position[site.op];
      if (site.op != trace::kNone || site.buffer != trace::kNone) recording.scalars.push_back(site);
    }
    for (trace::HostRead& read : recording.reads) read.op = position[read.op];
    for (trace::Number& number : recording.numbers) {
      if (number.op != trace::kNone) number.op = position[number.op];
    }
    std::erase_if(recording.module_access, [&](const trace::ModuleAccess& access) {
      return position[access.first_op] == trace::kNone;
    });
    for (trace::ModuleAccess& access : recording.module_access) {
      access.first_op = position[access.first_op];
    }
    Bindings bindings(recording);
    const auto leaf = [&](trace::LeafKind kind, const std::string& path) {
      return trace::leaf(bindings.leaf(kind, path));
    };
    for (const auto& [site, path] : numbers_) {
      bindings.bind(site, leaf(trace::LeafKind::kHyperparameter, path));
    }
    const auto count = [&](const std::string& path) {
      return leaf(trace::LeafKind::kStateNumber, path) + trace::constant(1);
    };
    for (const auto& [buffer, path] : counts_) {
      bindings.bind({trace::kNone, trace::kNone, trace::kNone, buffer, trace::kNone}, count(path));
    }
  }

  const trace::Recording& before_;
  RecordedNumbers recorded_;
  Fused fused_;
  std::vector<std::pair<trace::ScalarSite, std::string>> numbers_;
  std::vector<std::pair<trace::BufferId, std::string>> counts_;
};

}  // namespace

std::optional<Fused> fuse(const trace::Recording& recording) { return Fusion(recording).run(); }

}  // namespace steptape::replayer
