#include "replayer/runtime/cuda/executor.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/_foreach_copy.h>
#include <c10/core/Allocator.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <c10/util/ScopeExit.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "guards/mismatch.h"
#include "live/contents.h"
#include "live/stopwatch.h"
#include "live/tensors.h"
#include "replayer/runtime/cuda/given_gradients.h"
#include "replayer/runtime/cuda/graph.h"
#include "replayer/runtime/cuda/graph_pool.h"
#include "replayer/runtime/cuda/input_copies.h"
#include "replayer/runtime/cuda/plan/device_plan.h"
#include "replayer/runtime/cuda/plan/static_memory.h"
#include "replayer/runtime/cuda/plan_in_use.h"
#include "replayer/runtime/executor.h"
#include "replayer/runtime/memory.h"
#include "replayer/runtime/run_log.h"
#include "replayer/runtime/tensor_on.h"
#include "replayer/runtime/undo.h"

namespace steptape::replayer::cuda {
namespace {

/// What a run gives to the user: in new memory, where graphs would write it again. Each buffer has
/// an allocation of its own, as an eager step's has: who works on it on another stream tells the
/// allocator so (record_stream), which knows none but its own.
class OutcomeMemory {
 public:
  OutcomeMemory(c10::Device device, Gradients gradients) : device_(device), gradients_(gradients) {}

  /// Allocates it. Throws what allocation throws.
  void take(const DevicePlan& plan);
  /// What the run left, copied into it, without the numbers. Gradients that stay where the graphs
  /// write them are `given`, as those of `owner`.
  Outcome outcome(DevicePlan& plan, GivenGradients& given, const void* owner);
  void let_go() { memory_.clear(); }

 private:
  void take(const DevicePlan& plan, trace::TensorId id);
  at::Tensor tensor(DevicePlan& plan, trace::TensorId id);

  /// Of one buffer.
  struct Memory {
    c10::Storage storage;
    bool is_filled = false;
  };
  struct Copies {
    std::vector<at::Tensor> from, to;
  };

  c10::Device device_;
  Gradients gradients_;
  std::unordered_map<trace::BufferId, Memory> memory_;
  std::map<at::ScalarType, Copies> copies_;  ///< each done by one call
};

/// In memory that each run writes again.
bool is_graphs(const DevicePlan& plan, trace::BufferId buffer) {
  const Placement placement = plan.program.buffers[buffer].placement;
  return placement == Placement::kCaptured || placement == Placement::kStaging;
}

/// The buffer of what the user gets of the graphs' memory.
std::optional<trace::BufferId> graphs_buffer(const DevicePlan& plan, trace::TensorId id) {
  if (id == trace::kNoTensor) return std::nullopt;
  const trace::BufferId buffer = plan.recording().tensors[id].buffer;
  return is_graphs(plan, buffer) ? std::optional(buffer) : std::nullopt;
}

/// Whether a copy of its elements is one of all bytes of its buffer.
bool is_whole(const at::Tensor& tensor) {
  return tensor.nbytes() == tensor.storage().nbytes() && tensor.is_non_overlapping_and_dense() &&
         !tensor.is_conj() && !tensor.is_neg();
}

void OutcomeMemory::take(const DevicePlan& plan) {
  for (const trace::TensorId id : plan.recording().results) take(plan, id);
  for (const trace::ExitGradient& gradient : plan.recording().exit_gradients) {
    if (gradient.is_memory || gradients_ != Gradients::kStatic) take(plan, gradient.tensor);
  }
}

void OutcomeMemory::take(const DevicePlan& plan, trace::TensorId id) {
  const auto buffer = graphs_buffer(plan, id);
  if (!buffer || memory_.contains(*buffer)) return;
  memory_[*buffer].storage =
      c10::Storage(c10::Storage::use_byte_size_t(), plan.recording().buffers[*buffer].bytes,
                   c10::GetAllocator(device_.type()), /*resizable=*/true);
}

Outcome OutcomeMemory::outcome(DevicePlan& plan, GivenGradients& given, const void* owner) {
  Outcome outcome;
  for (const trace::TensorId id : plan.recording().results) {
    outcome.results.push_back(tensor(plan, id));
  }
  for (const trace::ExitGradient& gradient : plan.recording().exit_gradients) {
    const auto buffer = graphs_buffer(plan, gradient.tensor);
    const bool is_given = buffer && !memory_.contains(*buffer);
    outcome.gradients.push_back(
        is_given ? given.give(owner, *buffer, plan.memory.tensor(gradient.tensor))
                 : tensor(plan, gradient.tensor));
  }
  const live::Unseen unseen;
  for (auto& [dtype, copies] : std::exchange(copies_, {})) {
    at::_foreach_copy_(copies.to, copies.from);
  }
  return outcome;
}

at::Tensor OutcomeMemory::tensor(DevicePlan& plan, trace::TensorId id) {
  if (id == trace::kNoTensor) return {};
  const trace::Tensor& geometry = plan.recording().tensors[id];
  if (const auto buffer = graphs_buffer(plan, id)) {
    Memory& own = memory_.at(*buffer);
    at::Tensor made = tensor_on(own.storage, geometry);
    if (own.storage.nbytes() == 0 || std::exchange(own.is_filled, true)) return made;
    if (is_whole(made)) {
      Copies& copies = copies_[made.scalar_type()];
      copies.from.push_back(plan.memory.tensor(id));
      copies.to.push_back(made);
    } else {
      live::copy_bytes(own.storage.mutable_data(), device_, plan.memory.address(*buffer), device_,
                       own.storage.nbytes());
    }
    return made;
  }
  switch (plan.program.buffers[geometry.buffer].placement) {
    case Placement::kAdopted:
      return plan.memory.fresh_tensor(id);
    case Placement::kConstant:
      return plan.memory.copied_tensor(id);
    default:
      return {};
  }
}

/// What a run gives in new memory.
enum class HandOut { kNothing, kAll };

/// A kernel that is written in Python may run the garbage collector while this thread captures a
/// graph, and that may end an executor. To wait for its graphs would end the capture as well.
class CaptureMode {
 public:
  CaptureMode() = default;
  ~CaptureMode() {
    if (is_relaxed_) cudaThreadExchangeStreamCaptureMode(&mode_);
  }
  CaptureMode(const CaptureMode&) = delete;
  CaptureMode& operator=(const CaptureMode&) = delete;

  /// From here to its end the capture of this thread minds nothing.
  void relax() { is_relaxed_ = cudaThreadExchangeStreamCaptureMode(&mode_) == cudaSuccess; }

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
  bool is_relaxed_ = false;
};

class CudaExecutor final : public Executor {
 public:
  CudaExecutor(std::shared_ptr<const trace::Recording> recorded, const GeneratorOf& generator,
               const ExecutorOptions& options)
      : device_(live::device_of(device_of(*recorded))),
        recording_(std::move(recorded)),
        used_(recording_, generator),
        statics_(*recording_, plan().bound.buffers, plan().bound.written),
        pool_(GraphPool::of(options, device_)),
        copies_(*recording_, plan().bound.buffers, device_),
        gradients_(options.static_gradients ? Gradients::kStatic : Gradients::kNew),
        handed_out_(device_, gradients_),
        is_compared_(options.is_compared) {
    told_.device = device_.str();
  }

  ~CudaExecutor() override {
    capture_mode_.relax();
    try {
      // what graphs still read and write must not be given to others
      pool_->wait();
    } catch (const std::exception&) {
      // the device is lost, and its memory with it
    }
  }

  const Bound& bound_memory() const override { return plan().bound; }
  const std::vector<at::Generator>& generators() const override { return plan().calls.generators; }
  const Program& program() const override { return plan().program; }
  PlanStats stats() const override {
    return stats_of(plan(), used_.captured(), statics_, gradients_, told_);
  }

  void note_agreement() override { is_agreed_ = true; }

  Outcome run(const Run& asked) override {
    Outcome left;
    run(asked, HandOut::kAll, [&] { left = outcome(); });
    return left;
  }

  void run_into(const Run& asked, std::span<const at::Tensor> results,
                std::vector<double>& numbers) override {
    run(asked, HandOut::kNothing, [&] {
      for (std::size_t i = 0; i < results.size(); ++i) {
        copy_onto(plan().memory.tensor(recording_->results[i]), results[i]);
      }
      numbers.clear();
      add_numbers(numbers);
    });
  }

  void start_over() override {
    pool_->wait();
    used_.captured() = {};
  }

  bool ungroup() override {
    pool_->wait();
    return used_.ungroup();
  }

  bool set_apart(std::span<const trace::Index> ops) override {
    pool_->wait();
    return std::ranges::all_of(ops, [this](trace::Index op) { return used_.set_apart(op); });
  }

 private:
  DevicePlan& plan() { return used_.plan(); }
  const DevicePlan& plan() const { return used_.plan(); }

  void bind(std::span<void* const> addresses) {
    for (std::size_t i = 0; i < addresses.size(); ++i) {
      plan().memory.point_at(plan().bound.buffers[i], copies_.address(i, addresses[i]));
    }
    for (const trace::BufferId id : plan().bound.refilled) plan().memory.refill(id);
  }

  std::vector<Region> regions(const std::vector<std::size_t>& positions) const {
    std::vector<Region> regions;
    for (const std::size_t position : positions) {
      const trace::BufferId id = plan().bound.buffers[position];
      const trace::Buffer& buffer = recording_->buffers[id];
      regions.push_back({plan().memory.address(id), buffer.bytes, live::device_of(buffer.device)});
    }
    return regions;
  }

  void make_call(const Call& call) {
    if (call.kernel) {
      call.kernel->run();
    } else if (const auto element = plan().numbers->element(call)) {
      stack_.assign(1, *element);
    } else {
      put_arguments(call, stack_);
      call.callee.callBoxed(stack_);
    }
    if (log_.wants_digests()) log_.add_digests(std::span(&call, 1), plan().memory, stack_);
    if (call.adopts) plan().results.adopt(call, stack_);
    if (call.read != trace::kNone) plan().numbers->take_read(call, stack_.back());
  }

  void release(std::size_t segment) {
    for (const trace::BufferId id : plan().released_after[segment]) plan().memory.release(id);
  }

  /// Everything, by the dispatcher. What segments outside graphs make stays, until it is let go of.
  void run_op_by_op() {
    const BelowAutograd below;
    plan().seeks->begin();
    for (std::size_t p = 0; p < plan().segments.size(); ++p) {
      plan().seeks->before(p);
      for (const trace::Index op : plan().segments[p].ops) {
        make_call(plan().call_of(op));
        for (const trace::BufferId id : plan().freed_after[op]) plan().memory.release(id);
      }
      plan().seeks->after(p);
    }
    plan().seeks->end();
    stack_.clear();
  }

  void let_go_of_all() {
    stack_.clear();
    for (trace::BufferId id = 0; id < plan().program.buffers.size(); ++id) {
      if (plan().program.buffers[id].placement == Placement::kAdopted) plan().memory.release(id);
    }
    handed_out_.let_go();
  }

  /// Graphs for the memory that the plan is bound to. Everything is as it was before when it
  /// returns or throws.
  void make_graphs(const RunNumbers& given) {
    const live::Stopwatch watch;
    const c10::cuda::CUDAStream caller = c10::cuda::getCurrentCUDAStream(device_.index());
    pool_->wait();
    // the warm-up writes where graphs do
    pool_->given().move_out();
    used_.captured() = {};
    at::cuda::CUDAEvent before;
    const c10::cuda::CUDAStream side = pool_->side();
    before.record(caller);
    before.block(side);
    {
      const c10::cuda::CUDAStreamGuard on_side(side);
      try {
        warm_up(given);
        pool_->keep_workspaces();
        used_.captured() = capture(plan(), pool_->id());
      } catch (...) {
        let_go_of_all();
        // what was put back on this stream comes before all that the caller does now
        at::cuda::CUDAEvent failed;
        failed.record(side);
        failed.block(caller);
        throw;
      }
      let_go_of_all();
    }
    at::cuda::CUDAEvent after;
    after.record(side);
    after.block(caller);
    is_agreed_ = false;
    told_.capture_us = watch.us();
    ++told_.captures;
    told_.pool_bytes = 0;
    for (const auto& segment : c10::cuda::CUDACachingAllocator::snapshot(pool_->id()).segments) {
      if (segment.owner_private_pool_id == pool_->id()) told_.pool_bytes += segment.total_size;
    }
  }

  /// Libraries make their handles and choose their kernels, and ops outside graphs make what the
  /// graphs will find.
  void warm_up(const RunNumbers& given) {
    Undo all;
    all.take(regions(plan().bound.written),
             plan().bound.draws_random ? std::span<const at::Generator>(plan().calls.generators)
                                       : std::span<const at::Generator>());
    try {
      run_op_by_op();
    } catch (...) {
      let_go_of_all();
      all.restore();
      throw;
    }
    all.restore();
    // what eager steps and the warm-up had of temporaries is in the graphs' pool from here on
    if (told_.captures == 0) c10::cuda::CUDACachingAllocator::emptyCache();
    // what reads gave has been taken: the numbers of this call again
    for (const trace::BufferId id : plan().bound.refilled) plan().memory.refill(id);
    plan().numbers->begin(given);
  }

  /// Captures, keeping out of graphs what turns out to fit into none.
  void make_graphs_that_hold(const Run& asked, const Decision& decision) {
    const std::span<void* const> addresses = asked.memory;
    for (;;) {
      try {
        copies_.make(statics_, addresses);
        bind(addresses);
        copies_.copy_in(decision.copy_in, addresses);
        plan().numbers->begin(asked.numbers);
        make_graphs(asked.numbers);
        break;
      } catch (const CannotBeCaptured& found) {
        used_.give_up_on(found.op);
      }
    }
    statics_.captured(addresses);
    if (told_.captures > 1) told_.captured_for = decision.why;
    told_.graphs = static_cast<std::uint64_t>(
        std::ranges::count(plan().segments, SegmentKind::kGraph, &Segment::kind));
    told_.nodes = used_.captured().nodes;
    write_graphs();
  }

  /// For looking at: in the folder that the environment names, one file a graph. What cannot be
  /// written is left out.
  void write_graphs() const {
    static std::atomic<std::uint64_t> written{0};
    const char* folder = std::getenv("STEPTAPE_CUDA_GRAPHS");
    if (folder == nullptr) return;
    for (const Captured::Segment& captured_segment : used_.captured().segments) {
      if (!captured_segment.graph) continue;
      try {
        captured_segment.graph->write_dot(std::string(folder) + "/graph-" +
                                          std::to_string(++written) + ".dot");
      } catch (const Error&) {
        return;
      }
    }
  }

  /// Pinned memory may be about to be written by the device: a copy of it waits.
  void wait_for_pinned(const std::vector<Region>& written) const {
    const bool any = std::ranges::any_of(written, [](const Region& region) {
      return region.device.is_cpu() && region.bytes != 0 && is_pinned(region.address);
    });
    if (any) c10::cuda::getCurrentCUDAStream(device_.index()).synchronize();
  }

  void refuse_foreign_capture(const c10::cuda::CUDAStream& stream) const {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    check(cudaStreamIsCapturing(stream, &status), "looking at the current stream");
    if (status == cudaStreamCaptureStatusNone) return;
    throw AssumptionViolated(
        RefusalCode::kDevice,
        guards::failed(GuardKind::kAmbient, "stream.capturing", "false", "true"));
  }

  void refuse_uncompared(const std::string& why) const {
    if (is_compared_ && !log_.is_compared())
      throw Uncompared("no run of these graphs was compared: " + why);
  }

  void launch(std::size_t segment) {
    if (segment != 0 && segment < plan().first_decided) used_.check_numbers(segment);
    Captured::Segment& captured_segment = used_.captured().segments[segment];
    is_lasting_ = true;
    captured_segment.updates.put(*captured_segment.graph);
    captured_segment.graph->launch();
  }

  void run_part(std::size_t p) {
    const Segment& segment = plan().segments[p];
    if (segment.kind == SegmentKind::kGraph) {
      launch(p);
    } else {
      for (const trace::Index op : segment.ops) {
        const Call& call = plan().call_of(op);
        if (!used_.transfers().run(call)) make_call(call);
      }
    }
    release(p);
  }

  void run_parts(const std::function<void()>& decided, HandOut hands_out) {
    const BelowAutograd below;
    plan().seeks->begin();
    for (std::size_t p = 0; p < plan().segments.size(); ++p) {
      const bool is_graph = plan().segments[p].kind == SegmentKind::kGraph;
      if (p == plan().first_decided) decide(decided, hands_out);
      if (is_graph || makes_given(plan().segments[p])) pool_->given().move_out();
      const live::Stopwatch watch;
      plan().seeks->before(p);
      run_part(p);
      plan().seeks->after(p);
      // what is written until then is put back where the run ends
      if (p < plan().first_decided) is_lasting_ = false;
      if (log_.wants_times()) add_time(plan().segments[p], watch);
    }
    if (plan().first_decided == plan().segments.size()) decide(decided, hands_out);
    plan().seeks->end();
    stack_.clear();
  }

  /// Whether it lands something where a gradient lies that the user has.
  bool makes_given(const Segment& segment) const {
    if (pool_->given().is_empty()) return false;
    bool makes = false;
    for (const trace::Index op : segment.ops) {
      for_each_tensor_of(recording_->ops[op], [&](trace::TensorId id) {
        makes |= pool_->given().holds(this, recording_->tensors[id].buffer);
      });
    }
    return makes;
  }

  /// Nothing but a want of memory can end the run now: that for what the user gets is taken first.
  void decide(const std::function<void()>& decided, HandOut hands_out) {
    for (std::size_t p = std::max<std::size_t>(plan().first_decided, 1); p < plan().segments.size();
         ++p) {
      used_.check_numbers(p);
    }
    if (decided) decided();
    if (hands_out == HandOut::kAll) handed_out_.take(plan());
  }

  void add_time(const Segment& segment, const live::Stopwatch& watch) {
    c10::cuda::getCurrentCUDAStream(device_.index()).synchronize();
    StageTime time{{}, segment.why, static_cast<std::uint64_t>(watch.us() * 1e3)};
    time.ops.assign(segment.ops.begin(), segment.ops.end());
    log_.add_time(std::move(time));
  }

  template <typename Finish>
  void run(const Run& asked, HandOut hands_out, Finish finish) {
    log_.begin(asked.inspection, recording_->ops.size());
    const auto log_ends = c10::make_scope_exit([this] { log_.end(); });
    const std::span<void* const> addresses = asked.memory;
    const c10::cuda::CUDAGuard on_device(device_.index());
    const c10::cuda::CUDAStream stream = c10::cuda::getCurrentCUDAStream(device_.index());
    refuse_foreign_capture(stream);
    pool_->enter(stream);
    used_.begin();
    Decision decision = statics_.decide(addresses);
    if (decision.capture || !used_.captured().is_whole) {
      refuse_uncompared(decision.why);
      make_graphs_that_hold(asked, decision);
    } else {
      if (!is_agreed_) refuse_uncompared("the comparison did not come to its end");
      copies_.check_alignment(addresses);
    }
    bind(addresses);
    plan().numbers->begin(asked.numbers);
    if (is_compared_ && !log_.is_compared()) {
      if (used_.would_object_to_numbers()) refuse_uncompared("other numbers");
    } else if (std::string why = used_.object_to_numbers(); !why.empty()) {
      decision.why = std::move(why);
      make_graphs_that_hold(asked, decision);
    }
    copies_.copy_in(decision.copy_in, addresses);
    const std::vector<Region> undone = regions(plan().bound.undone);
    wait_for_pinned(undone);
    undo_.take(undone, plan().bound.restores_generators
                           ? std::span<const at::Generator>(plan().calls.generators)
                           : std::span<const at::Generator>());
    const live::Stopwatch watch;
    is_lasting_ = false;
    try {
      run_parts(asked.decided, hands_out);
      copies_.copy_back(decision.copy_back, addresses);
      finish();
    } catch (const std::exception& error) {
      let_go_of_all();
      pool_->leave(stream);
      if (is_lasting_) {
        throw StateCorrupted(
            std::string("the device failed after a launch that cannot be undone; parameters "
                        "and state may be half updated: ") +
            error.what());
      }
      wait_for_pinned(undone);
      undo_.restore();
      undo_.forget();
      throw;
    }
    let_go_of_all();
    undo_.forget();
    told_.launch_us = watch.us();
    pool_->leave(stream);
  }

  Outcome outcome() {
    Outcome outcome = handed_out_.outcome(plan(), pool_->given(), this);
    add_numbers(outcome.numbers);
    return outcome;
  }

  void add_numbers(std::vector<double>& to) const {
    for (const trace::Number& number : recording_->numbers) {
      to.push_back(plan().numbers->returned(number));
    }
  }

  CaptureMode capture_mode_;  ///< the first: its end is the last
  c10::Device device_;
  std::shared_ptr<const trace::Recording> recording_;
  PlanInUse used_;
  StaticMemory statics_;
  std::shared_ptr<GraphPool> pool_;
  InputCopies copies_;
  Gradients gradients_;
  OutcomeMemory handed_out_;  ///< by a run, while it ends
  Undo undo_;
  torch::jit::Stack stack_;
  RunLog log_;               ///< of the run under way
  bool is_lasting_ = false;  ///< something was written that is not put back where the run ends
  bool is_compared_;         ///< ExecutorOptions
  bool is_agreed_ = false;   ///< what these graphs leave, by a comparison
  DeviceStats told_;
};

}  // namespace

std::unique_ptr<Executor> make_executor(std::shared_ptr<const trace::Recording> recording,
                                        const GeneratorOf& generator,
                                        const ExecutorOptions& options) {
  const c10::cuda::CUDAGuard on_device(live::device_of(device_of(*recording)).index());
  return std::make_unique<CudaExecutor>(std::move(recording), generator, options);
}

}  // namespace steptape::replayer::cuda
