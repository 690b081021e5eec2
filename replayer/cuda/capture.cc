#include "replayer/cuda/capture.h"

#include <c10/util/Exception.h>

#include <span>
#include <utility>

#include "guards/mismatch.h"
#include "live/tensors.h"
#include "replayer/cuda/errors.h"
#include "replayer/run/below_autograd.h"
#include "replayer/run/tensor_on.h"

namespace steptape::replayer::cuda {
namespace {

/// The first line of what LibTorch says; behind it come advice and stacks.
std::string first_line(const std::exception& error) {
  const auto* known = dynamic_cast<const c10::Error*>(&error);
  const std::string text = known != nullptr ? known->what_without_backtrace() : error.what();
  return text.substr(0, text.find('\n'));
}

bool is_memset(cudaGraphNode_t node) {
  cudaGraphNodeType type{};
  check(cudaGraphNodeGetType(node, &type), "looking at a node");
  return type == cudaGraphNodeTypeMemset;
}

class Capturing {
 public:
  Capturing(DevicePlan& plan, c10::MempoolId_t pool) : plan_(plan), pool_(pool) {}

  Captured run() {
    for (GroupedCall& group : plan_.groups) {
      if (!group.take_numbers()) throw CannotBeCaptured{{group.call().op, kOtherNumbers}};
    }
    Captured captured;
    captured.stretches.resize(plan_.parts.size());
    for (std::size_t p = 0; p < plan_.parts.size(); ++p) {
      if (plan_.parts[p].way != Way::kGraph) continue;
      capture_part(plan_.parts[p], captured.stretches[p]);
      captured.nodes += captured.stretches[p].graph->node_count();
    }
    stand_in_for_freed();
    for (Learning& learning : learnings_) learn(learning);
    release_stand_ins();
    put_back_arguments();
    captured.is_whole = true;
    return captured;
  }

 private:
  /// A call whose numbers vary, with what it left in its graph.
  struct Learning {
    Call* call;
    std::vector<trace::Index> ops;  ///< that it does
    std::vector<CallNumber> numbers;
    std::vector<cudaGraphNode_t> nodes;
    NumberUpdates* updates;
  };

  std::unique_ptr<Graph> new_graph() const {
    return std::make_unique<Graph>(pool_, plan_.calls.generators);
  }

  void capture_part(const Part& part, Captured::Stretch& stretch) {
    stretch.graph = new_graph();
    stretch.graph->begin();
    for (std::size_t i = 0; i < part.ops.size();) {
      GroupedCall* group = plan_.group_with(part.ops[i]);
      const std::size_t count = group == nullptr ? 1 : group->ops().size();
      const auto ops = std::span(part.ops).subspan(i, count);
      capture_call(group == nullptr ? plan_.call_of(ops[0]) : group->call(), group, ops, stretch);
      i += count;
    }
    try {
      stretch.graph->end();
    } catch (const c10::OutOfMemoryError&) {
      throw;
    } catch (const std::exception& error) {
      stretch.graph->abandon();
      throw CannotBeCaptured{{part.ops.back(), first_line(error)}};
    }
  }

  /// `group` is null for the call of a single op.
  void capture_call(Call& call, const GroupedCall* group, std::span<const trace::Index> ops,
                    Captured::Stretch& stretch) {
    std::vector<CallNumber> numbers =
        group == nullptr ? numbers_of(plan_, call) : numbers_of(plan_, *group);
    if (!numbers.empty()) stretch.graph->take_new_nodes();
    make(call, group, *stretch.graph);
    if (!numbers.empty()) {
      learnings_.push_back({&call,
                            {ops.begin(), ops.end()},
                            std::move(numbers),
                            kernels(stretch.graph->take_new_nodes()),
                            &stretch.updates});
    }
    for (const trace::Index op : ops) {
      for (const trace::BufferId id : plan_.freed_behind[op]) plan_.memory.release(id);
    }
  }

  static std::vector<cudaGraphNode_t> kernels(std::vector<cudaGraphNode_t> nodes) {
    std::erase_if(nodes, is_memset);  // zeros: semaphores of reductions
    return nodes;
  }

  void make(Call& call, const GroupedCall* group, Graph& graph) {
    try {
      stack_.assign(call.arguments.begin(), call.arguments.end());
      call.callee.callBoxed(stack_);
      if (!graph.is_whole()) throw std::runtime_error("it ended the capture");
      if (group != nullptr) {
        adopt(*group);
      } else if (call.adopts) {
        plan_.results.adopt(call, stack_);
        follow_moved(call);
      }
      stack_.clear();
    } catch (const c10::OutOfMemoryError&) {
      give_up(graph);
      throw;
    } catch (const std::exception& error) {
      const std::string why = first_line(error);
      give_up(graph);
      throw CannotBeCaptured{{call.op, "under capture: " + why}};
    }
  }

  void adopt(const GroupedCall& group) {
    const std::vector<torch::jit::Stack> results = group.split(stack_);
    for (std::size_t i = 0; i < results.size(); ++i) {
      if (group.members()[i]->adopts) plan_.results.adopt(*group.members()[i], results[i]);
    }
  }

  void give_up(Graph& graph) {
    graph.abandon();
    stack_.clear();
    put_back_arguments();
  }

  /// Seeds of attention lie on the device now: who takes them takes the tensors that were made.
  void follow_moved(const Call& call) {
    for (std::size_t i = 0; i < call.outputs.size(); ++i) {
      const trace::TensorId id = call.outputs[i];
      if (id == trace::kNoTensor) continue;
      const trace::Buffer& buffer = plan_.recording().buffers[plan_.recording().tensors[id].buffer];
      const at::Tensor& made = plan_.memory.tensor(id);
      if (guards::is_on(made, buffer.device)) continue;
      const at::Tensor moved = plan_.memory.fresh_tensor(id);
      for (Call& other : plan_.calls.calls) {
        for (std::size_t a = 0; a < other.arguments.size(); ++a) {
          c10::IValue& argument = other.arguments[a];
          if (!argument.isTensor() || !argument.toTensor().is_same(made)) continue;
          replaced_.push_back({&argument, argument});
          argument = moved;
        }
      }
    }
  }

  void put_back_arguments() {
    for (auto& [argument, own] : replaced_) *argument = own;
    replaced_.clear();
  }

  /// What calls take and others have the memory of by now: captures that are thrown away need an
  /// address of the right alignment, and nobody goes there.
  void stand_in_for_freed() {
    const trace::Recording& recording = plan_.recording();
    for (const Learning& learning : learnings_) {
      for (const trace::Index op : learning.ops) {
        for_each_tensor_of(recording.ops[op],
                           [&](trace::TensorId id) { stand_in_for(recording.tensors[id].buffer); });
      }
    }
  }

  void stand_in_for(trace::BufferId buffer) {
    if (plan_.program.buffers[buffer].placement != Placement::kCaptured) return;
    if (plan_.memory.address(buffer) != nullptr) return;
    constexpr std::uintptr_t kNowhere = std::uintptr_t{1} << 20;
    const trace::Buffer& description = plan_.recording().buffers[buffer];
    plan_.memory.adopt(buffer, storage_over(reinterpret_cast<void*>(kNowhere), description.bytes,
                                            live::device_of(description.device)));
    stand_ins_.push_back(buffer);
  }

  void release_stand_ins() {
    for (const trace::BufferId buffer : stand_ins_) plan_.memory.release(buffer);
    stand_ins_.clear();
  }

  void learn(Learning& learning) {
    const auto images = [this](const Call& call, std::string& why) { return images_of(call, why); };
    std::string why = learning.updates->learn(*learning.call, std::move(learning.numbers),
                                              learning.nodes, images);
    if (why.empty()) return;
    release_stand_ins();
    put_back_arguments();
    throw CannotBeCaptured{{learning.call->op, "a number of the host that varies: " + why}};
  }

  std::optional<std::vector<KernelImage>> images_of(const Call& call, std::string& why) {
    const std::unique_ptr<Graph> graph = new_graph();
    graph->begin();
    try {
      torch::jit::Stack stack(call.arguments.begin(), call.arguments.end());
      call.callee.callBoxed(stack);
      std::vector<KernelImage> images;
      for (const cudaGraphNode_t node : kernels(graph->take_new_nodes())) {
        auto image = Graph::image_of(node, why);
        if (!image) break;
        images.push_back(*std::move(image));
      }
      stack.clear();
      graph->abandon();
      if (!why.empty()) return std::nullopt;
      return images;
    } catch (const std::exception& error) {
      graph->abandon();
      why = first_line(error);
      return std::nullopt;
    }
  }

  DevicePlan& plan_;
  c10::MempoolId_t pool_;
  torch::jit::Stack stack_;
  std::vector<Learning> learnings_;
  std::vector<trace::BufferId> stand_ins_;
  std::vector<std::pair<c10::IValue*, c10::IValue>> replaced_;
};

}  // namespace

Captured capture(DevicePlan& plan, c10::MempoolId_t pool) {
  const BelowAutograd below;
  return Capturing(plan, pool).run();
}

}  // namespace steptape::replayer::cuda
