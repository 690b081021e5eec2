#include "replayer/cpu/executor.h"

#include <ATen/core/stack.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <map>

#include "live/operators.h"
#include "live/values.h"
#include "replayer/analysis/writes.h"
#include "replayer/cpu/below_autograd.h"
#include "replayer/cpu/call.h"
#include "replayer/cpu/host_numbers.h"
#include "replayer/cpu/kernels/blas.h"
#include "replayer/cpu/kernels/dispatch.h"
#include "replayer/cpu/lanes/section.h"
#include "replayer/cpu/memory.h"
#include "replayer/cpu/results.h"
#include "replayer/cpu/run_log.h"
#include "replayer/cpu/seeks.h"
#include "replayer/cpu/stages.h"
#include "replayer/cpu/tensor_on.h"
#include "replayer/cpu/undo.h"

namespace steptape::replayer::cpu {

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
  std::size_t once = 0;  ///< the first stages, which the first run alone does
  std::vector<PlacedSection> sections;
  bool draws_random = false;
  bool restores_generators = false;
  bool ran_before = false;
  bool keeps_everything = false;
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
  Results results;
  RunLog log;  ///< of the next run

  Impl(Program lowered, const GeneratorOf& generator)
      : program(std::move(lowered)), memory(program), results(program, memory) {
    const Writes writes = writes_of(recording());
    sort_buffers(writes);
    prepare_calls(generator);
    hoist_reads(writes.earliest_reads);
    plan_releases();
    numbers.emplace(program, memory, calls);
    seeks.emplace(recording(), calls, generator);
    if (program.uses_kernels) prepare_kernels(program, memory, refilled, calls);
    const bool has_chains = program.uses_chains && seeks->empty();
    stages =
        stages_of(program, memory, calls, first_decided, has_chains ? Chains::kYes : Chains::kNo);
    once = static_cast<std::size_t>(std::ranges::count_if(
        stages, [this](const Stage& stage) { return calls[stage.first].is_once; }));
    if (seeks->empty())
      sections = sections_of(stages, calls, first_decided, memory, program.side_by_side);
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

  /// In each run.
  bool is_made(const BufferPlan& plan) const {
    return plan.defined >= 0 && !plan.stays &&
           program.instructions[static_cast<std::size_t>(plan.defined)].treatment !=
               Treatment::kDropped;
  }

  /// The last op whose results are allocated while it runs, which may fail for want of memory; -1:
  /// none.
  std::int64_t last_allocating_op() const {
    std::int64_t last = -1;
    for (const BufferPlan& plan : program.buffers) {
      if (is_new_each_time(plan.placement) && is_made(plan)) last = std::max(last, plan.defined);
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
      if (instruction.treatment == Treatment::kGeometry ||
          instruction.treatment == Treatment::kDropped)
        continue;
      const trace::Op& op = recording().ops[i];
      const auto recorded = live::find_operator(recording().operator_of(op));
      Call call{.callee = instruction.callee,
                .op = static_cast<trace::Index>(i),
                .may_throw = live::effects_of(*recorded).may_throw_on_data,
                .is_once = instruction.is_once,
                .at = instruction.is_once ? -1 : static_cast<std::int64_t>(i)};
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
      if (!is_new_each_time(plan.placement) || plan.defined < 0 || plan.stays) continue;
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

  void run_calls(const std::function<void()>& decided) {
    const BelowAutograd below;
    // a run that is looked at, and the first one, take one stage after the other
    const bool may_share = ran_before && !log.is_asked();
    keep_everything(log.wants_digests());
    auto section = sections.begin();
    for (std::size_t i = ran_before ? once : 0; i < stages.size();) {
      if (stages[i].first == first_decided && decided) {
        is_decided = true;
        decided();
      }
      if (may_share && section != sections.end() && section->first == i) {
        run_section(*section);
        i += section->count;
        ++section;
        continue;
      }
      running = &calls[stages[i].first];
      if (log.wants_times()) {
        run_timed(stages[i]);
      } else {
        run_stage(stages[i]);
      }
      ++i;
    }
    stack.clear();
    seeks->end();
    ran_before = true;
  }

  /// Digests are of what each op leaves, for which a run has no need.
  void keep_everything(bool keeps) {
    if (keeps == keeps_everything) return;
    keeps_everything = keeps;
    for (const Stage& stage : stages) {
      if (stage.chain) stage.chain->keep_everything(keeps);
    }
  }

  std::span<Call> calls_of(const Stage& stage) {
    return std::span(calls).subspan(stage.first, stage.count);
  }

  void make_memory(const Stage& stage) {
    for (const Call& call : calls_of(stage)) {
      for (const trace::BufferId id : call.makes) memory.make(id);
    }
  }

  void run_section(PlacedSection& placed) {
    const auto inside = std::span(stages).subspan(placed.first, placed.count);
    running = &calls[inside.front().first];
    for (const Stage& stage : inside) make_memory(stage);
    // none of them throws for what it reads; in which order they write is not said
    running = &calls_of(inside.back()).back();
    placed.section.run();
    for (const Stage& stage : inside) end_stage(stage);
  }

  void run_stage(const Stage& stage) {
    make_memory(stage);
    if (!seeks->empty()) seeks->before(stage.first);
    if (stage.chain) {
      stage.chain->run();
    } else {
      run_call(calls[stage.first]);
    }
    if (!seeks->empty()) seeks->after(stage.first);
    if (log.wants_digests()) log.add_digests(calls_of(stage), memory, stack);
    end_stage(stage);
  }

  void run_timed(const Stage& stage) {
    const auto start = std::chrono::steady_clock::now();
    run_stage(stage);
    const auto ns = std::chrono::nanoseconds(std::chrono::steady_clock::now() - start).count();
    log.add_time(calls_of(stage), static_cast<std::uint64_t>(ns));
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
    for (const Call& call : calls_of(stage)) {
      if (call.adopts) results.adopt(call, stack);
      if (call.read != trace::kNone) numbers->take_read(call, stack.back());
      if (!ran_before) results.check_placed(call);
      for (const trace::BufferId id : call.release) memory.release(id);
    }
  }

  at::Tensor outcome_of(trace::TensorId id, bool is_gradient) {
    if (id == trace::kNoTensor) return {};
    switch (program.buffers[recording().tensors[id].buffer].placement) {
      case Placement::kMade:
        if (is_gradient) return memory.gradient(id);
        [[fallthrough]];
      case Placement::kAdopted:
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
      const BufferPlan& plan = program.buffers[id];
      if (is_new_each_time(plan.placement) && !plan.stays) memory.release(id);
    }
  }

  /// `finish` takes what the run gives; where it throws, all is put back as well.
  template <typename Finish>
  void run(std::span<void* const> addresses, std::span<const double> leaves,
           const std::function<void()>& decided, Finish finish) {
    running = nullptr;
    is_decided = false;
    bind(addresses);
    numbers->begin(leaves);
    take_undo();
    seeks->begin();
    try {
      run_calls(decided);
      log.end();
      finish();
      let_go();
    } catch (const std::exception& error) {
      log.end();
      let_go_of_all();
      undo.restore();
      const bool is_surprise = is_decided && dynamic_cast<const Changed*>(&error) != nullptr;
      if (running == nullptr || (running->at < first_lasting_write && !is_surprise)) throw;
      throw Torn("op " + std::to_string(running->op) +
                 " threw behind a write that cannot be undone; " +
                 "parameters and state may be half updated: " + error.what());
    }
  }

  Outcome outcome() {
    Outcome outcome;
    for (const trace::TensorId id : recording().results)
      outcome.results.push_back(outcome_of(id, false));
    for (const trace::ExitGradient& gradient : recording().exit_gradients) {
      outcome.gradients.push_back(outcome_of(gradient.tensor, true));
    }
    add_numbers(outcome.numbers);
    return outcome;
  }

  void add_numbers(std::vector<double>& to) const {
    for (const trace::Number& number : recording().numbers) to.push_back(numbers->returned(number));
  }

  void copy_results(std::span<const at::Tensor> to) const {
    for (std::size_t i = 0; i < to.size(); ++i) {
      copy_onto(memory.tensor(recording().results[i]), to[i]);
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
  Outcome outcome;
  impl_->run(memory, leaves, decided, [&] { outcome = impl_->outcome(); });
  return outcome;
}

void Executor::run_into(std::span<void* const> memory, std::span<const double> leaves,
                        std::span<const at::Tensor> results, std::vector<double>& numbers) {
  impl_->run(memory, leaves, {}, [&] {
    impl_->copy_results(results);
    numbers.clear();
    impl_->add_numbers(numbers);
  });
}
const Program& Executor::program() const { return impl_->program; }
void Executor::log_digests(std::vector<std::optional<trace::Digest>>& digests) {
  digests.assign(impl_->recording().ops.size(), std::nullopt);
  impl_->log.ask_for(digests);
}

void Executor::log_times(std::vector<StageTime>& times) {
  times.clear();
  impl_->log.ask_for(times);
}

std::vector<SectionStats> Executor::sections() const {
  std::vector<SectionStats> stats;
  for (const PlacedSection& placed : impl_->sections) stats.push_back(placed.section.stats());
  return stats;
}

PlanStats Executor::stats() const {
  const Impl& impl = *impl_;
  PlanStats stats;
  stats.ops = impl.recording().ops.size();
  std::map<std::string, std::uint64_t> unprepared;
  for (const Call& call : impl.calls) {
    if (call.is_once) continue;
    ++stats.calls;
    if (call.adopts) ++stats.adopted;
    if (call.kernel) {
      ++stats.prepared;
    } else {
      ++unprepared[reason_of(call)];
    }
  }
  for (const auto& [reason, calls] : unprepared) stats.unprepared.push_back({reason, calls});
  std::ranges::stable_sort(stats.unprepared, std::ranges::greater(), &CountedReason::calls);
  stats.stages = impl.stages.size() - impl.once;
  for (const SectionStats& section : sections()) {
    stats.lanes_differed |= section.differed;
    if (section.lanes < 2) continue;
    stats.shared_stages += section.stages;
    stats.lanes = std::max<std::uint64_t>(stats.lanes, section.lanes);
    stats.in_order_us += static_cast<double>(section.in_order_ns) / 1e3;
    stats.shared_us += static_cast<double>(section.shared_ns) / 1e3;
  }
  stats.lacks_blas = impl.program.uses_kernels && blas().sgemm == nullptr;
  stats.arena_bytes = impl.program.arena_bytes;
  stats.temporary_bytes = impl.program.temporary_bytes;
  stats.max_live_bytes = impl.program.max_live_bytes;
  return stats;
}

}  // namespace steptape::replayer::cpu
