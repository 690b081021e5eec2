#include "replayer/runtime/cpu/executor.h"

#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>
#include <c10/util/Exception.h>
#include <c10/util/ScopeExit.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <map>
#include <vector>

#include "live/collectives.h"
#include "live/operators.h"
#include "replayer/planner/analysis/writes.h"
#include "replayer/runtime/call.h"
#include "replayer/runtime/calls.h"
#include "replayer/runtime/cpu/kernels/products/sgemm.h"
#include "replayer/runtime/cpu/kernels/table.h"
#include "replayer/runtime/cpu/stages.h"
#include "replayer/runtime/host_numbers.h"
#include "replayer/runtime/memory.h"
#include "replayer/runtime/run_log.h"
#include "replayer/runtime/seeks.h"
#include "replayer/runtime/tensor_on.h"
#include "replayer/runtime/undo.h"
#include "steptape/error.h"

namespace steptape::replayer::cpu {
namespace {

/// Notices warnings. A variant that warns is given up: some resize what they are given and back,
/// and say so each time; what the recorded op has to say it says itself.
class Noticing final : public c10::WarningHandler {
 public:
  void process(const c10::Warning&) override { has_warned = true; }
  bool has_warned = false;
};

at::Tensor like(const at::Tensor& placed) {
  return at::empty_strided(placed.sizes(), placed.strides(), placed.options());
}

bool is_as_given(const c10::IValue& found, const at::Tensor& given, const at::Tensor& placed,
                 std::size_t bytes) {
  return found.isTensor() && found.toTensor().is_same(given) && given.sizes() == placed.sizes() &&
         given.strides() == placed.strides() && given.storage_offset() == 0 &&
         given.scalar_type() == placed.scalar_type() && given.storage().nbytes() == bytes;
}

/// Some out variants do not write the results that they are given: `huber_loss.out` makes the loss
/// of each element its result, grows it for that with a warning, and hands back another tensor. No
/// schema tells. So the first run of a plan does each out variant over results of its own, and by
/// the operator itself from then on where they are not found as they were given.
///
/// Calls the out variant of `call`, and copies what it makes to `placed`, the plan's memory for it.
/// False: it does not keep its results, and nothing was written. `stack` is left with `placed`.
bool try_out_variant(const Call& call, const std::vector<at::Tensor>& placed,
                     torch::jit::Stack& stack) {
  std::vector<at::Tensor> given;
  std::vector<std::size_t> bytes;
  put_arguments(call, stack);
  for (std::size_t i = 0; i < placed.size(); ++i) {
    given.push_back(like(placed[i]));
    bytes.push_back(given.back().storage().nbytes());
    stack[stack.size() - placed.size() + i] = given.back();
  }
  Noticing noticing;
  try {
    const c10::WarningUtils::WarningHandlerGuard until_the_end(&noticing);
    call.callee.callBoxed(stack);
  } catch (const c10::Error&) {
    return false;
  }
  if (noticing.has_warned || stack.size() != placed.size()) return false;
  for (std::size_t i = 0; i < placed.size(); ++i) {
    if (!is_as_given(stack[i], given[i], placed[i], bytes[i])) return false;
  }
  for (std::size_t i = 0; i < placed.size(); ++i) {
    copy_onto(given[i], placed[i]);
    stack[i] = placed[i];
  }
  return true;
}

/// Makes it a call of the recorded operator, whose results are copied.
void give_up_out_variant(Call& call, const c10::OperatorHandle& recorded) {
  call.callee = recorded;
  call.arguments.resize(call.arguments.size() - call.placed.size());
  call.copies = true;
}

}  // namespace

Program plan(std::shared_ptr<const trace::Recording> recording, const PassOptions& options) {
  const auto fills_results = [](const c10::FunctionSchema& schema) {
    return KernelTable::all().fills_results(schema);
  };
  return replayer::plan(std::move(recording), fills_results, options);
}

struct Executor::Impl {
  Program program;
  Memory memory;
  Bound bound;
  std::vector<void*> lies_at;  ///< each of `bound.buffers`, now
  std::vector<trace::BufferId> trailing_releases;
  std::vector<at::Generator> generators;
  std::vector<Call> calls;
  std::vector<Stage> stages;
  std::size_t once = 0;  ///< the first stages, which the first run alone does
  bool ran_before = false;
  bool keeps_everything = false;
  const Call* running = nullptr;
  std::size_t first_decided = 0;  ///< the first call after Bound::last_deciding_op
  bool is_decided = false;
  Undo undo;
  torch::jit::Stack stack;
  std::optional<HostNumbers> numbers;
  std::optional<Seeks> seeks;
  CallResults results;
  RunLog log;                            ///< of the run under way
  live::Exchanges* exchanges = nullptr;  ///< the same

  Impl(Program lowered, const GeneratorOf& generator)
      : program(std::move(lowered)), memory(program), results(program, memory) {
    const Writes writes = writes_of(recording());
    bound = bound_of(program, writes);
    lies_at.resize(bound.buffers.size());
    Calls made = calls_of(program, memory, generator, writes.places);
    calls = std::move(made.calls);
    generators = std::move(made.generators);
    trailing_releases = std::move(made.trailing_releases);
    const auto decided = std::ranges::find_if(
        calls, [this](const Call& call) { return call.at > bound.last_deciding_op; });
    first_decided = static_cast<std::size_t>(decided - calls.begin());
    numbers.emplace(program, bound.refilled, memory, calls);
    const auto call_of = [this](trace::Index op) {
      const auto found = std::ranges::find(calls, op, &Call::op);
      return static_cast<std::size_t>(found - calls.begin());
    };
    seeks.emplace(recording(), calls.size(), call_of, generator);
    if (program.uses_kernels) prepare_kernels(program, memory, bound.refilled, calls);
    const bool fuses = program.fuses && seeks->empty();
    stages = stages_of(program, memory, calls, first_decided, fuses ? Fusion::kYes : Fusion::kNo);
    once = count_once();
  }

  const trace::Recording& recording() const { return *program.recording; }

  /// How many stages the first run alone does: those at the front, and none after them.
  std::size_t count_once() const {
    const auto is_once = [this](const Stage& stage) { return calls[stage.first].is_once; };
    const auto rest = std::ranges::find_if_not(stages, is_once);
    if (std::any_of(rest, stages.end(), is_once)) {
      throw Error(ErrorCode::kInternal, "what is done once stands after what each run does");
    }
    return static_cast<std::size_t>(rest - stages.begin());
  }

  void bind(std::span<void* const> addresses) {
    for (std::size_t i = 0; i < bound.buffers.size(); ++i) {
      // most lie where they did in the run before
      if (lies_at[i] != addresses[i]) point_at(i, addresses[i]);
    }
    for (const trace::BufferId id : bound.refilled) memory.refill(id);
  }

  void point_at(std::size_t position, void* address) {
    memory.point_at(bound.buffers[position], address);
    lies_at[position] = address;
  }

  void take_undo() {
    std::vector<Region> regions;
    for (const std::size_t position : bound.undone) {
      const trace::BufferId id = bound.buffers[position];
      regions.push_back({lies_at[position], recording().buffers[id].bytes});
    }
    undo.take(regions, bound.restores_generators ? std::span<const at::Generator>(generators)
                                                 : std::span<const at::Generator>());
  }

  void run_calls(const std::function<void()>& decided) {
    const BelowAutograd below;
    keep_everything(log.wants_digests());
    for (std::size_t i = ran_before ? once : 0; i < stages.size(); ++i) {
      if (stages[i].first == first_decided) land_exchanges();
      if (stages[i].first == first_decided && decided) {
        is_decided = true;
        decided();
      }
      running = &calls[stages[i].first];
      if (log.wants_times()) {
        run_timed(stages[i]);
      } else {
        run_stage(stages[i]);
      }
    }
    land_exchanges();
    stack.clear();
    seeks->end();
    ran_before = true;
  }

  /// Digests are of what each op leaves, for which a run has no need.
  void keep_everything(bool keeps) {
    if (keeps == keeps_everything) return;
    keeps_everything = keeps;
    for (const Stage& stage : stages) {
      if (stage.group) stage.group->keep_everything(keeps);
    }
  }

  std::span<Call> calls_in(const Stage& stage) {
    return std::span(calls).subspan(stage.first, stage.count);
  }

  /// Whether each run does the op, and in no pass with others.
  bool is_alone(trace::Index op) const {
    return std::ranges::any_of(stages, [&](const Stage& stage) {
      const Call& call = calls[stage.first];
      return stage.count == 1 && call.op == op && !call.is_once;
    });
  }

  void make_memory(const Stage& stage) {
    for (const Call& call : calls_in(stage)) {
      for (const trace::BufferId id : call.makes) memory.make(id);
    }
  }

  void run_stage(const Stage& stage) {
    make_memory(stage);
    if (exchanges != nullptr && exchanges->is_any_in_flight()) await_exchanges(stage);
    if (!seeks->empty()) seeks->before(stage.first);
    if (stage.group) {
      stage.group->run();
    } else {
      run_call(calls[stage.first]);
    }
    if (!seeks->empty()) seeks->after(stage.first);
    if (log.wants_digests()) log.add_digests(calls_in(stage), memory, stack);
    end_stage(stage);
  }

  void run_timed(const Stage& stage) {
    const auto start = std::chrono::steady_clock::now();
    run_stage(stage);
    const auto ns = std::chrono::nanoseconds(std::chrono::steady_clock::now() - start).count();
    log.add_time(calls_in(stage), static_cast<std::uint64_t>(ns));
  }

  void run_call(Call& call) {
    if (call.kernel) return call.kernel->run();
    if (!ran_before && program.instructions[call.op].treatment == Treatment::kOut && !call.copies) {
      if (try_out_variant(call, placed_of(call), stack)) return;
      give_up_out_variant(call,
                          *live::find_operator(recording().operator_of(recording().ops[call.op])));
    }
    if (call.group) return exchange(call);
    if (const auto element = numbers->element(call)) return stack.assign(1, *element);
    put_arguments(call, stack);
    call.callee.callBoxed(stack);
    if (call.copies) copy_made(stack, placed_of(call));
  }

  void exchange(const Call& call) {
    if (exchanges == nullptr)
      throw Error(ErrorCode::kUnsupported, "this run exchanges nothing with other processes");
    put_arguments(call, stack);
    stack[call.group->argument] = live::group_of(call.group->name);
    exchanges->run(call.callee, stack, [&] { call.callee.callBoxed(stack); });
  }

  /// What the stage looks at or writes has arrived when this returns.
  void await_exchanges(const Stage& stage) {
    for (const Call& call : calls_in(stage)) {
      exchanges->wait_for(call.arguments);
      exchanges->wait_for(placed_of(call));
    }
    exchanges->rethrow();
  }

  void land_exchanges() {
    if (exchanges == nullptr) return;
    exchanges->wait_for_all();
    exchanges->rethrow();
  }

  std::vector<at::Tensor> placed_of(const Call& call) const {
    std::vector<at::Tensor> placed;
    for (const trace::TensorId id : call.placed) placed.push_back(memory.tensor(id));
    return placed;
  }

  void end_stage(const Stage& stage) {
    for (const Call& call : calls_in(stage)) {
      if (call.adopts) results.adopt(call, stack);
      if (call.read != trace::kNone) numbers->take_read(call, stack.back());
      if (!ran_before) results.check_placed(call);
      // nobody takes memory away from what is in flight
      if (call.group && !call.release.empty()) await_exchanges(stage);
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
      case Placement::kCaptured:
      case Placement::kStaging:
        break;
    }
    return {};
  }

  void let_go() {
    for (const trace::BufferId id : trailing_releases) memory.release(id);
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
  void run(const Run& asked, Finish finish) {
    log.begin(asked.inspection, recording().ops.size());
    const auto log_ends = c10::make_scope_exit([this] { log.end(); });
    running = nullptr;
    is_decided = false;
    exchanges = asked.exchanges;
    if (exchanges != nullptr) exchanges->begin_run();
    bind(asked.memory);
    numbers->begin(asked.numbers);
    take_undo();
    seeks->begin();
    try {
      run_calls(asked.decided);
      finish();
      let_go();
    } catch (const std::exception& error) {
      if (exchanges != nullptr) exchanges->wait_for_all();
      let_go_of_all();
      undo.restore();
      const bool is_surprise =
          is_decided && dynamic_cast<const AssumptionViolated*>(&error) != nullptr;
      if (running == nullptr || (running->at < bound.first_lasting_write && !is_surprise)) throw;
      throw StateCorrupted("op " + std::to_string(running->op) +
                           " threw after a write that cannot be undone; " +
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

Executor::Executor(Program program, const GeneratorOf& generator)
    : impl_(std::make_unique<Impl>(std::move(program), generator)) {}
Executor::~Executor() = default;

const std::vector<trace::BufferId>& Executor::bound() const { return impl_->bound.buffers; }
const std::vector<std::size_t>& Executor::written() const { return impl_->bound.written; }

bool Executor::draws_random() const { return impl_->bound.draws_random; }
const std::vector<at::Generator>& Executor::generators() const { return impl_->generators; }
Outcome Executor::run(const Run& run) {
  Outcome outcome;
  impl_->run(run, [&] { outcome = impl_->outcome(); });
  return outcome;
}

void Executor::run_into(const Run& run, std::span<const at::Tensor> results,
                        std::vector<double>& numbers) {
  impl_->run(run, [&] {
    impl_->copy_results(results);
    numbers.clear();
    impl_->add_numbers(numbers);
  });
}
const Program& Executor::program() const { return impl_->program; }
void Executor::adapt_to(std::span<void* const> memory) {
  for (std::size_t i = 0; i < memory.size(); ++i) {
    impl_->point_at(i, memory[i]);
  }
  for (const Call& call : impl_->calls) {
    if (call.kernel) call.kernel->adapt();
  }
}

bool Executor::set_apart(std::span<const trace::Index> ops) {
  return std::ranges::all_of(ops, [this](trace::Index op) { return impl_->is_alone(op); });
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
  stats.lacks_blas = impl.program.uses_kernels && blas().sgemm == nullptr;
  stats.arena_bytes = impl.program.arena_bytes;
  stats.temporary_bytes = impl.program.temporary_bytes;
  stats.max_live_bytes = impl.program.max_live_bytes;
  return stats;
}

}  // namespace steptape::replayer::cpu
