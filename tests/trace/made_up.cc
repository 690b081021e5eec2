#include "tests/trace/made_up.h"

#include <algorithm>
#include <iterator>
#include <set>

#include "trace/path.h"

namespace steptape::test {
namespace {

using namespace trace;

class Maker {
 public:
  explicit Maker(const MadeUp& wanted) : wanted_(wanted), random_(wanted.seed) {
    for (const char* name : {"mul", "add", "relu", "mm", "sub", "exp", "tanh", "cat"}) {
      out_.operators.push_back(
          {std::string("aten::") + name, name[0] == 'c' ? "" : "Tensor",
           std::string("aten::") + name + "(Tensor self, Tensor other, Scalar alpha) -> Tensor"});
    }
    out_.operators.push_back(
        {"aten::add_", "Tensor",
         "aten::add_.Tensor(Tensor(a!) self, Tensor other, *, Scalar alpha=1) -> Tensor(a!)"});
    out_.operators.push_back(
        {"aten::slice", "Tensor", "aten::slice.Tensor(Tensor(a) self) -> Tensor(a)"});
    out_.operators.push_back(
        {"aten::mul_", "Tensor", "aten::mul_.Tensor(Tensor(a!) self, Tensor other) -> Tensor(a!)"});
    out_.modules.push_back({"model", "Net", true, {}, {}});
  }

  Recording make() {
    TensorId flow = tensor(Role::kInput, "inputs[0]", {wanted_.batch, 4});
    out_.inputs.push_back({"inputs[0]", {TensorRef{flow}}, false, {}});
    for (int m = 0; m < wanted_.modules; ++m) add_module(m);
    for (int m = 0; m < wanted_.modules; ++m) {
      const auto module = static_cast<Index>(1 + m);
      flow = run(module, 1, Phase::kForward, flow);
      if (pick(4) == 0) flow = run(module, 2, Phase::kForward, flow);
    }
    out_.results.push_back(flow);
    for (int m = wanted_.modules; m-- > 0;) {
      flow = run(static_cast<Index>(1 + m), 1, Phase::kBackward, flow);
    }
    for (int m = 0; m < wanted_.modules; ++m) update(weights_[static_cast<std::size_t>(m)], flow);
    return std::move(out_);
  }

 private:
  std::size_t pick(std::size_t below) {
    return std::uniform_int_distribution<std::size_t>(0, below - 1)(random_);
  }

  TensorId tensor(Role role, std::string path, std::vector<std::int64_t> sizes) {
    Buffer& buffer = out_.buffers.emplace_back();
    buffer.role = role;
    buffer.path = std::move(path);
    Tensor& tensor = out_.tensors.emplace_back();
    tensor.buffer = static_cast<BufferId>(out_.buffers.size() - 1);
    tensor.strides = {sizes[1], 1};
    tensor.sizes = std::move(sizes);
    buffer.bytes = static_cast<std::uint64_t>(tensor.numel()) * 4;
    return static_cast<TensorId>(out_.tensors.size() - 1);
  }

  void add_module(int number) {
    const std::string path = "model.m" + std::to_string(number);
    out_.modules.push_back({path, "Layer", true, {{"width", {std::int64_t{4}}}}, {}});
    weights_.push_back(tensor(Role::kParameter, path + ".weight", {4, 4}));
    out_.tracked.push_back({path + ".weight", Role::kParameter, weights_.back(), true, {}});
  }

  /// Ops of one call; gives the last result.
  TensorId run(Index module, std::uint32_t call, Phase phase, TensorId flow) {
    if (phase == Phase::kForward) {
      out_.module_access.push_back({module, call, static_cast<Index>(out_.ops.size())});
    }
    std::vector<TensorId> known = {flow, weights_[module - 1]};
    for (int i = 0; i < wanted_.ops_a_module; ++i) {
      Op op;
      if (wanted_.has_aliases && pick(2) == 0) {
        known.push_back(run_alias(module, call, phase, known[pick(known.size())], flow));
        continue;
      }
      op.op = static_cast<Index>(pick(8));
      op.module = module;
      op.call = call;
      op.phase = phase;
      op.inputs = {{TensorRef{known[pick(known.size())]}}, {TensorRef{known[pick(known.size())]}}};
      if (pick(2) == 0) {
        op.inputs.push_back({Real{static_cast<double>(pick(3)) * 0.25}});
      } else {
        op.inputs.push_back({std::int64_t{1}});
      }
      known.push_back(tensor(Role::kTemporary, "", {wanted_.batch, 4}));
      op.outputs = {{TensorRef{known.back()}}};
      out_.ops.push_back(std::move(op));
    }
    return known.back();
  }

  /// Some rows or columns of a tensor, or a tensor in place; gives what came of it.
  TensorId run_alias(Index module, std::uint32_t call, Phase phase, TensorId self, TensorId other) {
    const bool is_view = pick(2) == 0;
    Op op;
    op.op = is_view ? 9 : 10;
    op.module = module;
    op.call = call;
    op.phase = phase;
    op.inputs = {{TensorRef{self}}};
    TensorId left = self;
    if (is_view) {
      Tensor view = out_.tensors[self];
      const std::size_t dimension = pick(2);
      const auto count = static_cast<std::size_t>(view.sizes[dimension]);
      const std::size_t first = pick(count);
      view.offset += static_cast<std::int64_t>(first) * view.strides[dimension];
      view.sizes[dimension] = 1 + static_cast<std::int64_t>(pick(count - first));
      left = static_cast<TensorId>(out_.tensors.size());
      out_.tensors.push_back(std::move(view));
    } else {
      op.inputs.push_back({TensorRef{other}});
    }
    op.outputs = {{TensorRef{left}}};
    out_.ops.push_back(std::move(op));
    return left;
  }

  void update(TensorId weight, TensorId gradient) {
    Op op;
    op.op = 8;
    op.inputs = {{TensorRef{weight}}, {TensorRef{gradient}}, {Real{-0.1}}};
    op.outputs = {{TensorRef{weight}}};
    out_.ops.push_back(std::move(op));
  }

  MadeUp wanted_;
  std::mt19937_64 random_;
  Recording out_;
  std::vector<TensorId> weights_;
};

void count_first_ops(Recording& recording) {
  std::vector<ModuleAccess> found;
  std::set<std::pair<Index, std::uint32_t>> known;
  for (Index i = 0; i < recording.ops.size(); ++i) {
    const Op& op = recording.ops[i];
    if (op.module == kNone || !known.insert({op.module, op.call}).second) continue;
    found.push_back({op.module, op.call, i});
  }
  recording.module_access = std::move(found);
}

std::set<BufferId> buffers_of(const Recording& recording, const Op& op) {
  std::set<BufferId> buffers;
  const auto add = [&](const Value& value) {
    for_each_tensor(value, [&](TensorId id) { buffers.insert(recording.tensors[id].buffer); });
  };
  std::ranges::for_each(op.inputs, add);
  std::ranges::for_each(op.outputs, add);
  return buffers;
}

}  // namespace

Recording make_up(const MadeUp& wanted) { return Maker(wanted).make(); }

void insert_op(Recording& recording, Index at, Op op) {
  recording.ops.insert(recording.ops.begin() + at, std::move(op));
  count_first_ops(recording);
}

void remove_op(Recording& recording, Index at) {
  recording.ops.erase(recording.ops.begin() + at);
  count_first_ops(recording);
}

void move_op(Recording& recording, Index from, Index to) {
  const auto begin = recording.ops.begin();
  if (from < to) {
    std::rotate(begin + from, begin + from + 1, begin + to + 1);
  } else {
    std::rotate(begin + to, begin + from, begin + from + 1);
  }
  count_first_ops(recording);
}

Index add_operator(Recording& recording, const std::string& name, Index like) {
  Operator made = recording.operators[like];
  made.name = name;
  recording.operators.push_back(std::move(made));
  return static_cast<Index>(recording.operators.size() - 1);
}

TensorId copy_tensor(Recording& recording, TensorId tensor) {
  Tensor copy = recording.tensors[tensor];
  recording.tensors.push_back(std::move(copy));
  return static_cast<TensorId>(recording.tensors.size() - 1);
}

TensorRef* first_tensor(Op& op) {
  for (Value& value : op.inputs) {
    if (auto* tensor = std::get_if<TensorRef>(&value.data)) return tensor;
  }
  return nullptr;
}

Real* last_real(Op& op) {
  Real* last = nullptr;
  for (Value& value : op.inputs) {
    if (auto* real = std::get_if<Real>(&value.data)) last = real;
  }
  return last;
}

void insert_module(Recording& recording, Index at, int ops) {
  const auto module = static_cast<Index>(recording.modules.size());
  recording.modules.push_back({"model.inserted", "Dropout", true, {}, {}});
  TensorId flow = std::get<TensorRef>(recording.ops[at].outputs[0].data).id;
  for (int i = 0; i < ops; ++i) {
    Op op;
    op.op = static_cast<Index>(i % 8);
    op.module = module;
    op.call = 1;
    op.inputs = {{TensorRef{flow}}, {TensorRef{flow}}, {Real{0.5}}};
    Buffer buffer = recording.buffers[recording.tensors[flow].buffer];
    buffer.role = Role::kTemporary;
    buffer.path.clear();
    recording.buffers.push_back(std::move(buffer));
    flow = copy_tensor(recording, flow);
    recording.tensors[flow].buffer = static_cast<BufferId>(recording.buffers.size() - 1);
    op.outputs = {{TensorRef{flow}}};
    insert_op(recording, static_cast<Index>(at + 1 + static_cast<Index>(i)), std::move(op));
  }
}

std::pair<int, int> way_of(const Recording& recording, Index op) {
  const std::set<BufferId> own = buffers_of(recording, recording.ops[op]);
  const auto is_free = [&](Index other) {
    std::vector<BufferId> shared;
    std::ranges::set_intersection(own, buffers_of(recording, recording.ops[other]),
                                  std::back_inserter(shared));
    return shared.empty();
  };
  int up = 0;
  int down = 0;
  for (Index i = op; i-- > 0 && is_free(i);) --down;
  for (Index i = op + 1; i < recording.ops.size() && is_free(i); ++i) ++up;
  return {down, up};
}

}  // namespace steptape::test
