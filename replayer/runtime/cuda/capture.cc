#include "replayer/runtime/cuda/capture.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <utility>

#include "guards/mismatch.h"
#include "live/tensors.h"
#include "replayer/runtime/cuda/graph.h"
#include "replayer/runtime/memory.h"
#include "replayer/runtime/tensor_on.h"

namespace steptape::replayer::cuda {
namespace {

bool is_memset(cudaGraphNode_t node) {
  cudaGraphNodeType type{};
  check(cudaGraphNodeGetType(node, &type), "looking at a node");
  return type == cudaGraphNodeTypeMemset;
}

/// ATen hands kernels that take lists of tensors a struct of some 3 KB that it does not fill, so
/// that what the stack held before goes along: bytes of other frames, addresses on the heap
/// (multi_tensor_apply in ATen/native/cuda/MultiTensorApply.cuh). Such residue must differ between
/// captures of equal numbers, as it will some day, to be known for noise.
class Residue {
 public:
  /// Before each capture: the stack below holds other bytes than before the last but one, and what
  /// is allocated next lies elsewhere than ever before.
  void change() {
    paint_stack(++captures_ % 4 < 2 ? 0xa5 : 0x5a);
    constexpr std::size_t kLargest = 2048, kStep = 16;
    for (std::size_t bytes = kStep; bytes <= kLargest; bytes += kStep) {
      taken_.push_back(std::make_unique<std::byte[]>(bytes));  // NOLINT(modernize-avoid-c-arrays)
    }
  }
  void end() { taken_.clear(); }

 private:
  [[gnu::noinline]] static void paint_stack(std::uint8_t with) {
    constexpr std::size_t kBytes = 96 << 10;  // deeper than a boxed call goes before it launches
    volatile std::uint8_t residue[kBytes];    // NOLINT(modernize-avoid-c-arrays): on the stack
    for (volatile std::uint8_t& byte : residue) byte = with;
  }

  unsigned captures_ = 0;
  std::vector<std::unique_ptr<std::byte[]>> taken_;  // NOLINT(modernize-avoid-c-arrays)
};

class Capturing {
 public:
  Capturing(DevicePlan& plan, c10::MempoolId_t pool) : plan_(plan), pool_(pool) {}

  Captured run() {
    for (GroupedCall& group : plan_.groups) {
      if (!group.take_numbers()) throw CannotBeCaptured{{group.call().op, kOtherNumbers}};
    }
    Captured captured;
    captured.segments.resize(plan_.segments.size());
    for (std::size_t p = 0; p < plan_.segments.size(); ++p) {
      if (plan_.segments[p].kind != SegmentKind::kGraph) continue;
      capture_segment(plan_.segments[p], captured.segments[p]);
      captured.nodes += captured.segments[p].graph->node_count();
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
    std::vector<double> captured_with;
    std::vector<cudaGraphNode_t> nodes;
    NumberUpdates* updates;
  };

  std::unique_ptr<Graph> new_graph() const {
    return std::make_unique<Graph>(pool_, plan_.calls.generators);
  }

  void capture_segment(const Segment& segment, Captured::Segment& captured_segment) {
    captured_segment.graph = new_graph();
    captured_segment.graph->begin();
    for (std::size_t i = 0; i < segment.ops.size();) {
      GroupedCall* group = plan_.group_with(segment.ops[i]);
      const std::size_t count = group == nullptr ? 1 : group->ops().size();
      const auto ops = std::span(segment.ops).subspan(i, count);
      capture_call(group == nullptr ? plan_.call_of(ops[0]) : group->call(), group, ops,
                   captured_segment);
      i += count;
    }
    try {
      captured_segment.graph->end();
    } catch (const c10::OutOfMemoryError&) {
      throw;
    } catch (const std::exception& error) {
      captured_segment.graph->abandon();
      throw CannotBeCaptured{{segment.ops.back(), first_line(error)}};
    }
  }

  /// `group` is null for the call of a single op.
  void capture_call(Call& call, const GroupedCall* group, std::span<const trace::Index> ops,
                    Captured::Segment& captured_segment) {
    std::vector<CallNumber> numbers =
        group == nullptr ? numbers_of(plan_, call) : numbers_of(plan_, *group);
    // captured with other numbers than those of this run, so that no launch is right but by its
    // updates: what is wrong with them the first comparison with the eager step shows
    const std::vector<double> others = NumberUpdates::other_numbers(call, numbers);
    std::optional<MadeUp> made_up;
    if (!others.empty()) made_up.emplace(call).set(numbers, others);
    std::vector<cudaGraphNode_t> nodes = make(call, group, *captured_segment.graph);
    made_up.reset();
    if (!numbers.empty()) {
      learnings_.push_back({&call,
                            {ops.begin(), ops.end()},
                            std::move(numbers),
                            others,
                            kernels(std::move(nodes)),
                            &captured_segment.updates});
    }
    for (const trace::Index op : ops) {
      for (const trace::BufferId id : plan_.freed_after[op]) plan_.memory.release(id);
    }
  }

  static std::vector<cudaGraphNode_t> kernels(std::vector<cudaGraphNode_t> nodes) {
    std::erase_if(nodes, is_memset);  // zeros: semaphores of reductions
    return nodes;
  }

  /// Returns the nodes that it left in the graph.
  std::vector<cudaGraphNode_t> make(Call& call, const GroupedCall* group, Graph& graph) {
    try {
      stack_.assign(call.arguments.begin(), call.arguments.end());
      call.callee.callBoxed(stack_);
      if (!graph.is_whole()) throw std::runtime_error("it ended the capture");
      std::vector<cudaGraphNode_t> nodes = graph.take_new_nodes();
      if (std::ranges::any_of(nodes, Graph::needs_host)) {
        // what it was given of the host may be gone by the next launch
        throw std::runtime_error("it left a copy or a function of the host in the graph");
      }
      if (group != nullptr) {
        adopt(*group);
      } else if (call.adopts) {
        plan_.results.adopt(call, stack_);
        follow_moved(call);
      }
      stack_.clear();
      return nodes;
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
                                              learning.captured_with, learning.nodes, images);
    residue_.end();
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
      residue_.change();
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
  Residue residue_;
};

}  // namespace

Captured capture(DevicePlan& plan, c10::MempoolId_t pool) {
  // of what it has to say, the eager step has said what is the program's: other numbers are not
  struct Silent : c10::WarningHandler {
    void process(const c10::Warning&) override {}
  } silent;
  const c10::WarningUtils::WarningHandlerGuard until_the_end(&silent);
  const BelowAutograd below;
  return Capturing(plan, pool).run();
}

}  // namespace steptape::replayer::cuda
