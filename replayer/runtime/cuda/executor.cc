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
#include <chrono>
#include <cstdlib>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "guards/mismatch.h"
#include "live/contents.h"
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

using Clock = std::chrono::steady_clock;

double us_since(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

/// What a run gives in new memory.
enum class HandOut { kNothing, kAll };

}  // namespace

struct Executor::Impl {
  c10::Device device;
  std::shared_ptr<const trace::Recording> recording;
  PlanInUse used;
  StaticMemory statics;
  std::shared_ptr<GraphPool> pool;
  InputCopies copies;
  Gradients gradients;
  OutcomeMemory handed_out;  ///< by a run, while it ends
  Undo undo;
  torch::jit::Stack stack;
  RunLog log;               ///< of the run under way
  bool is_lasting = false;  ///< something was written that is not put back where the run ends
  bool is_compared;         ///< ExecutorOptions
  bool is_agreed = false;   ///< what these graphs leave, by a comparison
  DeviceStats told;

  Impl(std::shared_ptr<const trace::Recording> recorded, const GeneratorOf& generator,
       const ExecutorOptions& options)
      : device(live::device_of(device_of(*recorded))),
        recording(std::move(recorded)),
        used(recording, generator),
        statics(*recording, plan().bound.buffers, plan().bound.written),
        pool(GraphPool::of(options, device)),
        copies(*recording, plan().bound.buffers, device),
        gradients(options.static_gradients ? Gradients::kStatic : Gradients::kNew),
        handed_out(device, gradients),
        is_compared(options.is_compared) {
    told.device = device.str();
  }

  DevicePlan& plan() { return used.plan(); }
  const DevicePlan& plan() const { return used.plan(); }

  ~Impl() {
    try {
      // what graphs still read and write must not be given to others
      pool->wait();
    } catch (const std::exception&) {
      // the device is lost, and its memory with it
    }
  }

  void bind(std::span<void* const> addresses) {
    for (std::size_t i = 0; i < addresses.size(); ++i) {
      plan().memory.point_at(plan().bound.buffers[i], copies.address(i, addresses[i]));
    }
    for (const trace::BufferId id : plan().bound.refilled) plan().memory.refill(id);
  }

  std::vector<Region> regions(const std::vector<std::size_t>& positions) const {
    std::vector<Region> regions;
    for (const std::size_t position : positions) {
      const trace::BufferId id = plan().bound.buffers[position];
      const trace::Buffer& buffer = recording->buffers[id];
      regions.push_back({plan().memory.address(id), buffer.bytes, live::device_of(buffer.device)});
    }
    return regions;
  }

  void make_call(const Call& call) {
    if (call.kernel) {
      call.kernel->run();
    } else if (const auto element = plan().numbers->element(call)) {
      stack.assign(1, *element);
    } else {
      put_arguments(call, stack);
      call.callee.callBoxed(stack);
    }
    if (log.wants_digests()) log.add_digests(std::span(&call, 1), plan().memory, stack);
    if (call.adopts) plan().results.adopt(call, stack);
    if (call.read != trace::kNone) plan().numbers->take_read(call, stack.back());
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
    stack.clear();
  }

  void let_go_of_all() {
    stack.clear();
    for (trace::BufferId id = 0; id < plan().program.buffers.size(); ++id) {
      if (plan().program.buffers[id].placement == Placement::kAdopted) plan().memory.release(id);
    }
    handed_out.let_go();
  }

  /// Graphs for the memory that the plan is bound to. Everything is as it was before when it
  /// returns or throws.
  void make_graphs(const RunNumbers& given) {
    const auto start = Clock::now();
    const c10::cuda::CUDAStream caller = c10::cuda::getCurrentCUDAStream(device.index());
    pool->wait();
    // the warm-up writes where graphs do
    pool->given().move_out();
    used.captured() = {};
    at::cuda::CUDAEvent before;
    const c10::cuda::CUDAStream side = pool->side();
    before.record(caller);
    before.block(side);
    {
      const c10::cuda::CUDAStreamGuard on_side(side);
      try {
        warm_up(given);
        pool->keep_workspaces();
        used.captured() = capture(plan(), pool->id());
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
    is_agreed = false;
    told.capture_us = us_since(start);
    ++told.captures;
    told.pool_bytes = 0;
    for (const auto& segment : c10::cuda::CUDACachingAllocator::snapshot(pool->id()).segments) {
      if (segment.owner_private_pool_id == pool->id()) told.pool_bytes += segment.total_size;
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
    if (told.captures == 0) c10::cuda::CUDACachingAllocator::emptyCache();
    // what reads gave has been taken: the numbers of this call again
    for (const trace::BufferId id : plan().bound.refilled) plan().memory.refill(id);
    plan().numbers->begin(given);
  }

  /// Captures, keeping out of graphs what turns out to fit into none.
  void make_graphs_that_hold(const Run& asked, const Decision& decision) {
    const std::span<void* const> addresses = asked.memory;
    for (;;) {
      try {
        copies.make(statics, addresses);
        bind(addresses);
        copies.copy_in(decision.copy_in, addresses);
        plan().numbers->begin(asked.numbers);
        make_graphs(asked.numbers);
        break;
      } catch (const CannotBeCaptured& found) {
        used.give_up_on(found.op);
      }
    }
    statics.captured(addresses);
    if (told.captures > 1) told.captured_for = decision.why;
    told.graphs = static_cast<std::uint64_t>(
        std::ranges::count(plan().segments, SegmentKind::kGraph, &Segment::kind));
    told.nodes = used.captured().nodes;
    write_graphs();
  }

  /// For looking at: in the folder that the environment names, one file a graph. What cannot be
  /// written is left out.
  void write_graphs() const {
    static std::atomic<std::uint64_t> written{0};
    const char* folder = std::getenv("STEPTAPE_CUDA_GRAPHS");
    if (folder == nullptr) return;
    for (const Captured::Segment& captured_segment : used.captured().segments) {
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
    if (any) c10::cuda::getCurrentCUDAStream(device.index()).synchronize();
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
    if (is_compared && !log.is_compared())
      throw Uncompared("no run of these graphs was compared: " + why);
  }

  void launch(std::size_t segment) {
    if (segment != 0 && segment < plan().first_decided) used.check_numbers(segment);
    Captured::Segment& captured_segment = used.captured().segments[segment];
    is_lasting = true;
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
        if (!used.transfers().run(call)) make_call(call);
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
      if (is_graph || makes_given(plan().segments[p])) pool->given().move_out();
      const auto start = Clock::now();
      plan().seeks->before(p);
      run_part(p);
      plan().seeks->after(p);
      // what is written until then is put back where the run ends
      if (p < plan().first_decided) is_lasting = false;
      if (log.wants_times()) add_time(plan().segments[p], start);
    }
    if (plan().first_decided == plan().segments.size()) decide(decided, hands_out);
    plan().seeks->end();
    stack.clear();
  }

  /// Whether it lands something where a gradient lies that the user has.
  bool makes_given(const Segment& segment) const {
    if (pool->given().is_empty()) return false;
    bool makes = false;
    for (const trace::Index op : segment.ops) {
      for_each_tensor_of(recording->ops[op], [&](trace::TensorId id) {
        makes |= pool->given().holds(this, recording->tensors[id].buffer);
      });
    }
    return makes;
  }

  /// Nothing but a want of memory can end the run now: that for what the user gets is taken first.
  void decide(const std::function<void()>& decided, HandOut hands_out) {
    for (std::size_t p = std::max<std::size_t>(plan().first_decided, 1); p < plan().segments.size();
         ++p) {
      used.check_numbers(p);
    }
    if (decided) decided();
    if (hands_out == HandOut::kAll) handed_out.take(plan());
  }

  void add_time(const Segment& segment, Clock::time_point start) {
    c10::cuda::getCurrentCUDAStream(device.index()).synchronize();
    StageTime time{{}, segment.why, static_cast<std::uint64_t>(us_since(start) * 1e3)};
    time.ops.assign(segment.ops.begin(), segment.ops.end());
    log.add_time(std::move(time));
  }

  template <typename Finish>
  void run(const Run& asked, HandOut hands_out, Finish finish) {
    log.begin(asked.inspection, recording->ops.size());
    const auto log_ends = c10::make_scope_exit([this] { log.end(); });
    const std::span<void* const> addresses = asked.memory;
    const c10::cuda::CUDAGuard on_device(device.index());
    const c10::cuda::CUDAStream stream = c10::cuda::getCurrentCUDAStream(device.index());
    refuse_foreign_capture(stream);
    pool->enter(stream);
    used.begin();
    Decision decision = statics.decide(addresses);
    if (decision.capture || !used.captured().is_whole) {
      refuse_uncompared(decision.why);
      make_graphs_that_hold(asked, decision);
    } else {
      if (!is_agreed) refuse_uncompared("the comparison did not come to its end");
      copies.check_alignment(addresses);
    }
    bind(addresses);
    plan().numbers->begin(asked.numbers);
    if (is_compared && !log.is_compared()) {
      if (used.would_object_to_numbers()) refuse_uncompared("other numbers");
    } else if (std::string why = used.object_to_numbers(); !why.empty()) {
      decision.why = std::move(why);
      make_graphs_that_hold(asked, decision);
    }
    copies.copy_in(decision.copy_in, addresses);
    const std::vector<Region> undone = regions(plan().bound.undone);
    wait_for_pinned(undone);
    undo.take(undone, plan().bound.restores_generators
                          ? std::span<const at::Generator>(plan().calls.generators)
                          : std::span<const at::Generator>());
    const auto start = Clock::now();
    is_lasting = false;
    try {
      run_parts(asked.decided, hands_out);
      copies.copy_back(decision.copy_back, addresses);
      finish();
    } catch (const std::exception& error) {
      let_go_of_all();
      pool->leave(stream);
      if (is_lasting) {
        throw StateCorrupted(
            std::string("the device failed after a launch that cannot be undone; parameters "
                        "and state may be half updated: ") +
            error.what());
      }
      wait_for_pinned(undone);
      undo.restore();
      undo.forget();
      throw;
    }
    let_go_of_all();
    undo.forget();
    told.launch_us = us_since(start);
    pool->leave(stream);
  }

  Outcome outcome() {
    Outcome outcome = handed_out.outcome(plan(), pool->given(), this);
    add_numbers(outcome.numbers);
    return outcome;
  }

  void add_numbers(std::vector<double>& to) const {
    for (const trace::Number& number : recording->numbers) {
      to.push_back(plan().numbers->returned(number));
    }
  }
};

Executor::Executor(std::shared_ptr<const trace::Recording> recording, const GeneratorOf& generator,
                   const ExecutorOptions& options) {
  const c10::cuda::CUDAGuard on_device(live::device_of(device_of(*recording)).index());
  impl_ = std::make_unique<Impl>(std::move(recording), generator, options);
}

Executor::~Executor() {
  // A kernel that is written in Python may run the garbage collector while this thread captures a
  // graph, and that may end an executor. To wait for its graphs would end the capture as well.
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  const bool is_relaxed = cudaThreadExchangeStreamCaptureMode(&mode) == cudaSuccess;
  impl_.reset();
  if (is_relaxed) cudaThreadExchangeStreamCaptureMode(&mode);
}

const std::vector<trace::BufferId>& Executor::bound() const { return impl_->plan().bound.buffers; }
const std::vector<std::size_t>& Executor::written() const { return impl_->plan().bound.written; }
bool Executor::draws_random() const { return impl_->plan().bound.draws_random; }
const std::vector<at::Generator>& Executor::generators() const {
  return impl_->plan().calls.generators;
}

void Executor::note_agreement() { impl_->is_agreed = true; }

Outcome Executor::run(const Run& run) {
  Outcome outcome;
  impl_->run(run, HandOut::kAll, [&] { outcome = impl_->outcome(); });
  return outcome;
}

void Executor::run_into(const Run& run, std::span<const at::Tensor> results,
                        std::vector<double>& numbers) {
  impl_->run(run, HandOut::kNothing, [&] {
    for (std::size_t i = 0; i < results.size(); ++i) {
      copy_onto(impl_->plan().memory.tensor(impl_->recording->results[i]), results[i]);
    }
    numbers.clear();
    impl_->add_numbers(numbers);
  });
}

void Executor::start_over() {
  impl_->pool->wait();
  impl_->used.captured() = {};
}

bool Executor::ungroup() {
  impl_->pool->wait();
  return impl_->used.ungroup();
}

bool Executor::set_apart(std::span<const trace::Index> ops) {
  impl_->pool->wait();
  return std::ranges::all_of(ops, [this](trace::Index op) { return impl_->used.set_apart(op); });
}

const Program& Executor::program() const { return impl_->plan().program; }
PlanStats Executor::stats() const {
  return stats_of(impl_->plan(), impl_->used.captured(), impl_->statics, impl_->gradients,
                  impl_->told);
}

}  // namespace steptape::replayer::cuda
