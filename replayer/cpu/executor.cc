#include "replayer/cpu/executor.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/stack.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <map>

#include "guards/mismatch.h"
#include "live/op_digest.h"
#include "live/operators.h"
#include "live/tensors.h"
#include "live/values.h"
#include "replayer/analysis/writes.h"
#include "replayer/cpu/call.h"
#include "replayer/cpu/host_numbers.h"
#include "replayer/cpu/kernels/blas.h"
#include "replayer/cpu/kernels/dispatch.h"
#include "replayer/cpu/memory.h"
#include "replayer/cpu/seeks.h"
#include "replayer/cpu/stages.h"
#include "replayer/cpu/undo.h"

namespace steptape::replayer::cpu {
namespace {

/// Ops are called as they were below autograd: autograd, in-place bookkeeping and autocast have had
/// their turn when the step was recorded.
class BelowAutograd {
  at::AutoDispatchBelowADInplaceOrView below_;
  c10::impl::ExcludeDispatchKeyGuard autocast_{c10::autocast_dispatch_keyset};
};

}  // namespace

struct Executor::Impl {
  Program program;
  Memory memory;
  std::vector<trace::BufferId> bound;
  std::vector<std::size_t> written;
  std::vector<std::size_t> undone;  ///< positions in `bound` that a throw must put back
  std::vector<trace::BufferId> refilled;
  std::vector<trace::BufferId>
      leftover;  ///< adopted buffers that the user gets, let go of at the end
  std::vector<at::Generator> generators;
  std::vector<Call> calls;
  std::vector<Stage> stages;
  bool draws_random = false;
  bool restores_generators = false;
  bool ran_before = false;
  const Call* running = nullptr;
  /// The first op that writes bound memory of which no copy is taken: no op behind it should throw.
  std::int64_t first_lasting_write = std::numeric_limits<std::int64_t>::max();
  /// Behind it nothing but a want of memory can end a run.
  std::int64_t last_deciding_op = -1;
  std::size_t first_decided = 0;  ///< the first call behind it
  bool is_decided = false;
  Undo undo;
  torch::jit::Stack stack;
  std::optional<HostNumbers> numbers;
  std::optional<Seeks> seeks;
  std::vector<std::optional<trace::Digest>>* digests = nullptr;  ///< of the next run
  std::vector<StageTime>* times = nullptr;                       ///< likewise

  Impl(Program lowered, const GeneratorOf& generator)
      : program(std::move(lowered)), memory(program) {
    const Writes writes = writes_of(recording());
    sort_buffers(writes);
    prepare_calls(generator);
    hoist_reads(writes.earliest_reads);
    plan_releases();
    numbers.emplace(program, memory, calls);
    seeks.emplace(recording(), calls, generator);
    if (program.uses_kernels) prepare_kernels(program, memory, refilled, calls);
    const bool has_chains = program.uses_chains && seeks->empty();
    stages = stages_of(calls, first_decided, has_chains ? Chains::kYes : Chains::kNo);
  }

  const trace::Recording& recording() const { return *program.recording; }

  void sort_buffers(const Writes& writes) {
    last_deciding_op = writes.last_throwing_op;
    const std::int64_t last_throwing_op = std::max(writes.last_throwing_op, last_allocating_op());
    std::vector<std::size_t> position(program.buffers.size(), 0);
    for (trace::BufferId id = 0; id < program.buffers.size(); ++id) {
      if (program.buffers[id].placement != Placement::kBound) continue;
      position[id] = bound.size();
      bound.push_back(id);
    }
    for (const Writes::Write& write : writes.writes) {
      if (program.buffers[write.buffer].placement == Placement::kConstant) {
        refilled.push_back(write.buffer);
        continue;
      }
      written.push_back(position[write.buffer]);
      if (write.first_op <= last_throwing_op) {
        undone.push_back(position[write.buffer]);
      } else {
        first_lasting_write = std::min(first_lasting_write, write.first_op);
      }
    }
    draws_random = writes.draws_random;
    restores_generators = writes.draws_random && last_throwing_op >= 0;
  }

  /// The last op whose results are allocated while it runs, which may fail for want of memory; -1:
  /// none.
  std::int64_t last_allocating_op() const {
    std::int64_t last = -1;
    for (const BufferPlan& plan : program.buffers) {
      if (is_new_each_time(plan.placement)) last = std::max(last, plan.defined);
    }
    return last;
  }

  void prepare_calls(const GeneratorOf& generator) {
    generators.push_back(generator("default"));
    const auto tensor = [this](trace::TensorId id) { return memory.tensor(id); };
    const auto tracked_generator = [&](const std::string& path) {
      at::Generator found = generator(path);
      if (std::find(generators.begin(), generators.end(), found) == generators.end()) {
        generators.push_back(found);
      }
      return found;
    };
    for (std::size_t i = 0; i < program.instructions.size(); ++i) {
      const Instruction& instruction = program.instructions[i];
      if (instruction.treatment == Treatment::kGeometry) continue;
      const trace::Op& op = recording().ops[i];
      Call call{.callee = instruction.callee,
                .op = static_cast<trace::Index>(i),
                .at = static_cast<std::int64_t>(i)};
      const auto& arguments = instruction.callee.schema().arguments();
      for (std::size_t a = 0; a < op.inputs.size(); ++a) {
        call.arguments.push_back(
            live::ivalue_of(op.inputs[a], *arguments[a].type(), tensor, tracked_generator));
      }
      if (instruction.treatment != Treatment::kCall) {
        prepare_placement(call, op, instruction.treatment);
      } else {
        prepare_adoption(call, op);
      }
      calls.push_back(std::move(call));
    }
  }

  void prepare_placement(Call& call, const trace::Op& op, Treatment treatment) {
    for (const trace::Value& output : op.outputs) {
      for_each_tensor(output, [&](trace::TensorId id) {
        call.placed.push_back(id);
        if (treatment == Treatment::kOut) call.arguments.emplace_back(memory.tensor(id));
        const trace::BufferId buffer = recording().tensors[id].buffer;
        if (program.buffers[buffer].placement == Placement::kMade) call.makes.push_back(buffer);
      });
    }
    call.copies = treatment == Treatment::kInto;
  }

  void prepare_adoption(Call& call, const trace::Op& op) {
    for (const trace::Value& output : op.outputs) {
      for_each_tensor(output, [&](trace::TensorId id) {
        call.outputs.push_back(id);
        if (id == trace::kNoTensor) return;
        call.adopts |= program.buffers[recording().tensors[id].buffer].defined ==
                       static_cast<std::int64_t>(call.op);
      });
    }
  }

  void hoist_reads(const std::vector<std::int64_t>& earliest) {
    for (std::size_t i = 0; i < earliest.size(); ++i) {
      const auto read = std::ranges::find(calls, recording().reads[i].op, &Call::op);
      if (read != calls.end()) read->at = earliest[i];
    }
    // a read comes behind the call whose place it shares
    std::ranges::stable_sort(calls, {}, [](const Call& call) {
      return std::pair(call.at, call.at != static_cast<std::int64_t>(call.op));
    });
    const auto decided = std::ranges::find_if(
        calls, [this](const Call& call) { return call.at > last_deciding_op; });
    first_decided = static_cast<std::size_t>(decided - calls.begin());
  }

  void plan_releases() {
    std::vector<Call*> last_call(program.buffers.size(), nullptr);
    for (Call& call : calls) {
      const auto use = [&](trace::TensorId id) {
        if (id != trace::kNoTensor) last_call[recording().tensors[id].buffer] = &call;
      };
      const trace::Op& op = recording().ops[call.op];
      for (const trace::Value& value : op.inputs) for_each_tensor(value, use);
      for (const trace::Value& value : op.outputs) for_each_tensor(value, use);
    }
    const auto end = static_cast<std::int64_t>(recording().ops.size());
    for (trace::BufferId id = 0; id < program.buffers.size(); ++id) {
      const BufferPlan& plan = program.buffers[id];
      if (!is_new_each_time(plan.placement) || plan.defined < 0) continue;
      if (plan.last_use == end || last_call[id] == nullptr) {
        leftover.push_back(id);
      } else {
        last_call[id]->release.push_back(id);
      }
    }
  }

  void bind(std::span<void* const> addresses) {
    for (std::size_t i = 0; i < bound.size(); ++i) memory.point_at(bound[i], addresses[i]);
    for (const trace::BufferId id : refilled) memory.refill(id);
  }

  void take_undo() {
    std::vector<Region> regions;
    for (const std::size_t position : undone) {
      const trace::BufferId id = bound[position];
      regions.push_back({memory.address(id), recording().buffers[id].bytes});
    }
    undo.take(regions, restores_generators ? std::span<const at::Generator>(generators)
                                           : std::span<const at::Generator>());
  }

  void adopt_results(const Call& call) {
    std::vector<at::Tensor> results;
    for (const c10::IValue& value : stack) {
      live::for_each_tensor(value, [&](const at::Tensor& tensor) { results.push_back(tensor); });
    }
    if (results.size() != call.outputs.size()) {
      throw other_result(guards::failed(GuardKind::kRunShape, name_of(call) + " results.size",
                                        static_cast<std::int64_t>(call.outputs.size()),
                                        static_cast<std::int64_t>(results.size())));
    }
    for (std::size_t i = 0; i < results.size(); ++i) adopt_result(call, i, results[i]);
  }

  void adopt_result(const Call& call, std::size_t position, const at::Tensor& result) {
    const trace::TensorId id = call.outputs[position];
    if (id == trace::kNoTensor) {
      if (!result.defined()) return;
      throw other_result(guards::failed(GuardKind::kRunShape, result_path(call, position),
                                        "undefined", "a tensor"));
    }
    const trace::Tensor& expected = recording().tensors[id];
    const trace::Buffer& buffer = recording().buffers[expected.buffer];
    const bool is_new =
        program.buffers[expected.buffer].defined == static_cast<std::int64_t>(call.op);
    if (result.defined() && !is_new) return;
    if (!fits(result, expected, buffer)) {
      throw other_result(
          guards::result_mismatch(result_path(call, position), expected, buffer, result));
    }
    memory.adopt(expected.buffer, result.storage());
  }

  static bool fits(const at::Tensor& result, const trace::Tensor& expected,
                   const trace::Buffer& buffer) {
    // the plan's own storages cannot be resized: one of them must not reach the user as new memory
    return result.defined() && result.has_storage() && result.storage().resizable() &&
           lies_as(result, expected) && result.storage().nbytes() >= buffer.bytes;
  }

  static bool lies_as(const at::Tensor& result, const trace::Tensor& expected) {
    return guards::has_geometry(result, expected, live::scalar_type_of(expected.dtype)) &&
           result.storage_offset() == expected.offset;
  }

  static std::string result_path(const Call& call, std::size_t position) {
    return name_of(call) + " results[" + std::to_string(position) + "]";
  }

  static Changed other_result(Verdict verdict) {
    verdict.kind = GuardKind::kRunShape;
    return {RefusalCode::kDataDependentShape, std::move(verdict)};
  }

  void run_calls(const std::function<void()>& decided) {
    const BelowAutograd below;
    for (const Stage& stage : stages) {
      if (stage.first == first_decided && decided) {
        is_decided = true;
        decided();
      }
      running = &calls[stage.first];
      if (times != nullptr) {
        run_timed(stage);
      } else {
        run_stage(stage);
      }
    }
    stack.clear();
    seeks->end();
    ran_before = true;
  }

  void run_stage(const Stage& stage) {
    for (std::size_t i = stage.first; i < stage.first + stage.count; ++i) {
      for (const trace::BufferId id : calls[i].makes) memory.make(id);
    }
    if (!seeks->empty()) seeks->before(stage.first);
    if (stage.chain) {
      stage.chain->run();
    } else {
      run_call(calls[stage.first]);
    }
    if (!seeks->empty()) seeks->after(stage.first);
    if (digests != nullptr) log_digests(stage);
    end_stage(stage);
  }

  void run_timed(const Stage& stage) {
    const auto start = std::chrono::steady_clock::now();
    run_stage(stage);
    const auto ns = std::chrono::nanoseconds(std::chrono::steady_clock::now() - start).count();
    StageTime time{{}, reason_of(calls[stage.first]), static_cast<std::uint64_t>(ns)};
    for (std::size_t i = stage.first; i < stage.first + stage.count; ++i) {
      time.ops.push_back(calls[i].op);
    }
    times->push_back(std::move(time));
  }

  static std::string reason_of(const Call& call) {
    if (call.kernel) return {};
    return c10::str(call.callee.operator_name(), ": ", call.no_kernel);
  }

  void run_call(const Call& call) {
    if (call.kernel) return call.kernel->run();
    stack.assign(call.arguments.begin(), call.arguments.end());
    call.callee.callBoxed(stack);
    if (call.copies) copy_made(stack, placed_of(call));
  }

  std::vector<at::Tensor> placed_of(const Call& call) const {
    std::vector<at::Tensor> placed;
    for (const trace::TensorId id : call.placed) placed.push_back(memory.tensor(id));
    return placed;
  }

  void end_stage(const Stage& stage) {
    for (std::size_t i = stage.first; i < stage.first + stage.count; ++i) {
      const Call& call = calls[i];
      if (call.adopts) adopt_results(call);
      if (call.read != trace::kNone) numbers->take_read(call, stack.back());
      if (!ran_before) check_placed(call);
      for (const trace::BufferId id : call.release) memory.release(id);
    }
  }

  /// Of calls that were done in one pass, those whose results no later one wrote over: buffers that
  /// do not live at the same time share memory.
  void log_digests(const Stage& stage) {
    std::vector<std::pair<std::uintptr_t, std::uintptr_t>> written;
    for (std::size_t i = stage.first + stage.count; i-- > stage.first;) {
      const Call& call = calls[i];
      if (call.kernel) put_results(call);
      if (stage.count == 1) return log_digest(call);
      std::vector<at::Tensor> tensors = live::written_tensors(call.callee, call.arguments);
      for (const trace::TensorId id : call.placed) tensors.push_back(memory.tensor(id));
      std::vector<std::pair<std::uintptr_t, std::uintptr_t>> own;
      for (const at::Tensor& tensor : tensors) {
        const auto begin = reinterpret_cast<std::uintptr_t>(tensor.const_data_ptr());
        own.emplace_back(begin, begin + tensor.nbytes());  // a chain's tensors have no gaps
      }
      const bool is_over = std::ranges::any_of(own, [&](const auto& a) {
        return std::ranges::any_of(
            written, [&](const auto& b) { return a.first < b.second && b.first < a.second; });
      });
      written.insert(written.end(), own.begin(), own.end());
      if (!is_over) log_digest(call);
    }
  }

  /// What the dispatcher would have left on the stack.
  void put_results(const Call& call) {
    stack.clear();
    if (!call.placed.empty()) {
      for (const trace::TensorId id : call.placed) stack.emplace_back(memory.tensor(id));
    } else if (!call.callee.schema().returns().empty()) {
      stack.push_back(call.arguments.front());
    }
  }

  void log_digest(const Call& call) {
    // the results of an out variant are arguments that it writes: told apart, they are results
    // again
    std::vector<at::Tensor> written = live::written_tensors(call.callee, call.arguments);
    written.resize(written.size() - std::min(written.size(), call.placed.size()));
    (*digests)[call.op] = live::op_digest(stack, written);
  }

  /// An out variant reshapes a result of the wrong shape instead of refusing it.
  void check_placed(const Call& call) const {
    for (std::size_t i = 0; i < call.placed.size(); ++i) {
      const trace::Tensor& expected = recording().tensors[call.placed[i]];
      const at::Tensor& result = memory.tensor(call.placed[i]);
      if (lies_as(result, expected)) continue;
      throw other_result(guards::result_mismatch(result_path(call, i), expected,
                                                 recording().buffers[expected.buffer], result));
    }
  }

  at::Tensor outcome_of(trace::TensorId id) const {
    if (id == trace::kNoTensor) return {};
    switch (program.buffers[recording().tensors[id].buffer].placement) {
      case Placement::kAdopted:
      case Placement::kMade:
        return memory.fresh_tensor(id);
      case Placement::kConstant:
        return memory.copied_tensor(id);
      case Placement::kBound:
      case Placement::kArena:
        break;
    }
    return {};
  }

  void let_go() {
    for (const trace::BufferId id : leftover) memory.release(id);
  }

  void let_go_of_all() {
    stack.clear();
    for (trace::BufferId id = 0; id < program.buffers.size(); ++id) {
      if (is_new_each_time(program.buffers[id].placement)) memory.release(id);
    }
  }

  Outcome run(std::span<void* const> addresses, std::span<const double> leaves,
              const std::function<void()>& decided) {
    running = nullptr;
    is_decided = false;
    bind(addresses);
    numbers->begin(leaves);
    take_undo();
    seeks->begin();
    try {
      run_calls(decided);
      digests = nullptr;
      times = nullptr;
      Outcome outcome;
      for (const trace::TensorId id : recording().results)
        outcome.results.push_back(outcome_of(id));
      for (const trace::ExitGradient& gradient : recording().exit_gradients) {
        outcome.gradients.push_back(outcome_of(gradient.tensor));
      }
      for (const trace::Number& number : recording().numbers) {
        outcome.numbers.push_back(numbers->returned(number));
      }
      let_go();
      return outcome;
    } catch (const std::exception& error) {
      digests = nullptr;
      times = nullptr;
      let_go_of_all();
      undo.restore();
      const bool is_surprise = is_decided && dynamic_cast<const Changed*>(&error) != nullptr;
      if (running == nullptr || (running->at < first_lasting_write && !is_surprise)) throw;
      throw Torn("op " + std::to_string(running->op) +
                 " threw behind a write that cannot be undone; " +
                 "parameters and state may be half updated: " + error.what());
    }
  }
};

Executor::Executor(Program program, GeneratorOf generator)
    : impl_(std::make_unique<Impl>(std::move(program), generator)) {}
Executor::~Executor() = default;

const std::vector<trace::BufferId>& Executor::bound() const { return impl_->bound; }
const std::vector<std::size_t>& Executor::written() const { return impl_->written; }

std::vector<trace::BufferId> Executor::written_buffers() const {
  std::vector<trace::BufferId> buffers;
  for (const std::size_t position : impl_->written) buffers.push_back(impl_->bound[position]);
  return buffers;
}

bool Executor::draws_random() const { return impl_->draws_random; }
const std::vector<at::Generator>& Executor::generators() const { return impl_->generators; }
Outcome Executor::run(std::span<void* const> memory, std::span<const double> leaves,
                      const std::function<void()>& decided) {
  return impl_->run(memory, leaves, decided);
}
const Program& Executor::program() const { return impl_->program; }
void Executor::log_digests(std::vector<std::optional<trace::Digest>>& digests) {
  digests.assign(impl_->recording().ops.size(), std::nullopt);
  impl_->digests = &digests;
}

void Executor::log_times(std::vector<StageTime>& times) {
  times.clear();
  impl_->times = &times;
}

PlanStats Executor::stats() const {
  const Impl& impl = *impl_;
  PlanStats stats;
  stats.ops = impl.recording().ops.size();
  stats.calls = impl.calls.size();
  stats.adopted = static_cast<std::uint64_t>(std::count_if(
      impl.calls.begin(), impl.calls.end(), [](const Call& call) { return call.adopts; }));
  std::map<std::string, std::uint64_t> unprepared;
  for (const Call& call : impl.calls) {
    if (call.kernel) {
      ++stats.prepared;
    } else {
      ++unprepared[Impl::reason_of(call)];
    }
  }
  for (const auto& [reason, calls] : unprepared) stats.unprepared.push_back({reason, calls});
  std::ranges::stable_sort(stats.unprepared, std::ranges::greater(), &CountedReason::calls);
  stats.stages = impl.stages.size();
  stats.lacks_blas = impl.program.uses_kernels && blas().sgemm == nullptr;
  stats.arena_bytes = impl.program.arena_bytes;
  stats.temporary_bytes = impl.program.temporary_bytes;
  stats.max_live_bytes = impl.program.max_live_bytes;
  return stats;
}

}  // namespace steptape::replayer::cpu
