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

class CpuExecutor final : public Executor {
 public:
  CpuExecutor(Program lowered, const GeneratorOf& generator)
      : program_(std::move(lowered)), memory_(program_), results_(program_, memory_) {
    const Writes writes = writes_of(recording());
    bound_ = bound_of(program_, writes);
    lies_at_.resize(bound_.buffers.size());
    Calls made = calls_of(program_, memory_, generator, writes.places);
    calls_ = std::move(made.calls);
    generators_ = std::move(made.generators);
    trailing_releases_ = std::move(made.trailing_releases);
    const auto decided = std::ranges::find_if(
        calls_, [this](const Call& call) { return call.at > bound_.last_deciding_op; });
    first_decided_ = static_cast<std::size_t>(decided - calls_.begin());
    numbers_.emplace(program_, bound_.refilled, memory_, calls_);
    const auto call_of = [this](trace::Index op) {
      const auto found = std::ranges::find(calls_, op, &Call::op);
      return static_cast<std::size_t>(found - calls_.begin());
    };
    seeks_.emplace(recording(), calls_.size(), call_of, generator);
    if (program_.uses_kernels) prepare_kernels(program_, memory_, bound_.refilled, calls_);
    const bool fuses = program_.fuses && seeks_->empty();
    stages_ =
        stages_of(program_, memory_, calls_, first_decided_, fuses ? Fusion::kYes : Fusion::kNo);
    once_ = count_once();
  }

  const Bound& bound_memory() const override { return bound_; }
  const std::vector<at::Generator>& generators() const override { return generators_; }
  const Program& program() const override { return program_; }

  Outcome run(const Run& asked) override {
    Outcome left;
    run(asked, [&] { left = outcome(); });
    return left;
  }

  void run_into(const Run& asked, std::span<const at::Tensor> results,
                std::vector<double>& numbers) override {
    run(asked, [&] {
      copy_results(results);
      numbers.clear();
      add_numbers(numbers);
    });
  }

  void adapt_to(std::span<void* const> memory) override {
    for (std::size_t i = 0; i < memory.size(); ++i) point_at(i, memory[i]);
    for (const Call& call : calls_) {
      if (call.kernel) call.kernel->adapt();
    }
  }

  bool set_apart(std::span<const trace::Index> ops) override {
    return std::ranges::all_of(ops, [this](trace::Index op) { return is_alone(op); });
  }

  PlanStats stats() const override {
    PlanStats stats;
    stats.ops = recording().ops.size();
    std::map<std::string, std::uint64_t> unprepared;
    for (const Call& call : calls_) {
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
    stats.stages = stages_.size() - once_;
    stats.lacks_blas = program_.uses_kernels && blas().sgemm == nullptr;
    stats.arena_bytes = program_.arena_bytes;
    stats.temporary_bytes = program_.temporary_bytes;
    stats.max_live_bytes = program_.max_live_bytes;
    return stats;
  }

 private:
  const trace::Recording& recording() const { return *program_.recording; }

  /// How many stages the first run alone does: those at the front, and none after them.
  std::size_t count_once() const {
    const auto is_once = [this](const Stage& stage) { return calls_[stage.first].is_once; };
    const auto rest = std::ranges::find_if_not(stages_, is_once);
    if (std::any_of(rest, stages_.end(), is_once)) {
      throw Error(ErrorCode::kInternal, "what is done once stands after what each run does");
    }
    return static_cast<std::size_t>(rest - stages_.begin());
  }

  void bind(std::span<void* const> addresses) {
    for (std::size_t i = 0; i < bound_.buffers.size(); ++i) {
      // most lie where they did in the run before
      if (lies_at_[i] != addresses[i]) point_at(i, addresses[i]);
    }
    for (const trace::BufferId id : bound_.refilled) memory_.refill(id);
  }

  void point_at(std::size_t position, void* address) {
    memory_.point_at(bound_.buffers[position], address);
    lies_at_[position] = address;
  }

  void take_undo() {
    std::vector<Region> regions;
    for (const std::size_t position : bound_.undone) {
      const trace::BufferId id = bound_.buffers[position];
      regions.push_back({lies_at_[position], recording().buffers[id].bytes});
    }
    undo_.take(regions, bound_.restores_generators ? std::span<const at::Generator>(generators_)
                                                   : std::span<const at::Generator>());
  }

  void run_calls(const std::function<void()>& decided) {
    const BelowAutograd below;
    keep_everything(log_.wants_digests());
    for (std::size_t i = ran_before_ ? once_ : 0; i < stages_.size(); ++i) {
      if (stages_[i].first == first_decided_) land_exchanges();
      if (stages_[i].first == first_decided_ && decided) {
        is_decided_ = true;
        decided();
      }
      running_ = &calls_[stages_[i].first];
      if (log_.wants_times()) {
        run_timed(stages_[i]);
      } else {
        run_stage(stages_[i]);
      }
    }
    land_exchanges();
    stack_.clear();
    seeks_->end();
    ran_before_ = true;
  }

  /// Digests are of what each op leaves, for which a run has no need.
  void keep_everything(bool keeps) {
    if (keeps == keeps_everything_) return;
    keeps_everything_ = keeps;
    for (const Stage& stage : stages_) {
      if (stage.group) stage.group->keep_everything(keeps);
    }
  }

  std::span<Call> calls_in(const Stage& stage) {
    return std::span(calls_).subspan(stage.first, stage.count);
  }

  /// Whether each run does the op, and in no pass with others.
  bool is_alone(trace::Index op) const {
    return std::ranges::any_of(stages_, [&](const Stage& stage) {
      const Call& call = calls_[stage.first];
      return stage.count == 1 && call.op == op && !call.is_once;
    });
  }

  void make_memory(const Stage& stage) {
    for (const Call& call : calls_in(stage)) {
      for (const trace::BufferId id : call.makes) memory_.make(id);
    }
  }

  void run_stage(const Stage& stage) {
    make_memory(stage);
    if (exchanges_ != nullptr && exchanges_->is_any_in_flight()) await_exchanges(stage);
    if (!seeks_->empty()) seeks_->before(stage.first);
    if (stage.group) {
      stage.group->run();
    } else {
      run_call(calls_[stage.first]);
    }
    if (!seeks_->empty()) seeks_->after(stage.first);
    if (log_.wants_digests()) log_.add_digests(calls_in(stage), memory_, stack_);
    end_stage(stage);
  }

  void run_timed(const Stage& stage) {
    const auto start = std::chrono::steady_clock::now();
    run_stage(stage);
    const auto ns = std::chrono::nanoseconds(std::chrono::steady_clock::now() - start).count();
    log_.add_time(calls_in(stage), static_cast<std::uint64_t>(ns));
  }

  void run_call(Call& call) {
    if (call.kernel) return call.kernel->run();
    if (!ran_before_ && program_.instructions[call.op].treatment == Treatment::kOut &&
        !call.copies) {
      if (try_out_variant(call, placed_of(call), stack_)) return;
      give_up_out_variant(call,
                          *live::find_operator(recording().operator_of(recording().ops[call.op])));
    }
    if (call.group) return exchange(call);
    if (const auto element = numbers_->element(call)) return stack_.assign(1, *element);
    put_arguments(call, stack_);
    call.callee.callBoxed(stack_);
    if (call.copies) copy_made(stack_, placed_of(call));
  }

  void exchange(const Call& call) {
    if (exchanges_ == nullptr)
      throw Error(ErrorCode::kUnsupported, "this run exchanges nothing with other processes");
    put_arguments(call, stack_);
    stack_[call.group->argument] = live::group_of(call.group->name);
    exchanges_->run(call.callee, stack_, [&] { call.callee.callBoxed(stack_); });
  }

  /// What the stage looks at or writes has arrived when this returns.
  void await_exchanges(const Stage& stage) {
    for (const Call& call : calls_in(stage)) {
      exchanges_->wait_for(call.arguments);
      exchanges_->wait_for(placed_of(call));
    }
    exchanges_->rethrow();
  }

  void land_exchanges() {
    if (exchanges_ == nullptr) return;
    exchanges_->wait_for_all();
    exchanges_->rethrow();
  }

  std::vector<at::Tensor> placed_of(const Call& call) const {
    std::vector<at::Tensor> placed;
    for (const trace::TensorId id : call.placed) placed.push_back(memory_.tensor(id));
    return placed;
  }

  void end_stage(const Stage& stage) {
    for (const Call& call : calls_in(stage)) {
      if (call.adopts) results_.adopt(call, stack_);
      if (call.read != trace::kNone) numbers_->take_read(call, stack_.back());
      if (!ran_before_) results_.check_placed(call);
      // nobody takes memory away from what is in flight
      if (call.group && !call.release.empty()) await_exchanges(stage);
      for (const trace::BufferId id : call.release) memory_.release(id);
    }
  }

  at::Tensor outcome_of(trace::TensorId id, bool is_gradient) {
    if (id == trace::kNoTensor) return {};
    switch (program_.buffers[recording().tensors[id].buffer].placement) {
      case Placement::kMade:
        if (is_gradient) return memory_.gradient(id);
        [[fallthrough]];
      case Placement::kAdopted:
        return memory_.fresh_tensor(id);
      case Placement::kConstant:
        return memory_.copied_tensor(id);
      case Placement::kBound:
      case Placement::kArena:
      case Placement::kCaptured:
      case Placement::kStaging:
        break;
    }
    return {};
  }

  void let_go() {
    for (const trace::BufferId id : trailing_releases_) memory_.release(id);
  }

  void let_go_of_all() {
    stack_.clear();
    for (trace::BufferId id = 0; id < program_.buffers.size(); ++id) {
      const BufferPlan& plan = program_.buffers[id];
      if (is_new_each_time(plan.placement) && !plan.stays) memory_.release(id);
    }
  }

  /// `finish` takes what the run gives; where it throws, all is put back as well.
  template <typename Finish>
  void run(const Run& asked, Finish finish) {
    log_.begin(asked.inspection, recording().ops.size());
    const auto log_ends = c10::make_scope_exit([this] { log_.end(); });
    running_ = nullptr;
    is_decided_ = false;
    exchanges_ = asked.exchanges;
    if (exchanges_ != nullptr) exchanges_->begin_run();
    bind(asked.memory);
    numbers_->begin(asked.numbers);
    take_undo();
    seeks_->begin();
    try {
      run_calls(asked.decided);
      finish();
      let_go();
    } catch (const std::exception& error) {
      if (exchanges_ != nullptr) exchanges_->wait_for_all();
      let_go_of_all();
      undo_.restore();
      const bool is_surprise =
          is_decided_ && dynamic_cast<const AssumptionViolated*>(&error) != nullptr;
      if (running_ == nullptr || (running_->at < bound_.first_lasting_write && !is_surprise)) throw;
      throw StateCorrupted("op " + std::to_string(running_->op) +
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
    for (const trace::Number& number : recording().numbers)
      to.push_back(numbers_->returned(number));
  }

  void copy_results(std::span<const at::Tensor> to) const {
    for (std::size_t i = 0; i < to.size(); ++i) {
      copy_onto(memory_.tensor(recording().results[i]), to[i]);
    }
  }

  Program program_;
  Memory memory_;
  Bound bound_;
  std::vector<void*> lies_at_;  ///< each of `bound_.buffers`, now
  std::vector<trace::BufferId> trailing_releases_;
  std::vector<at::Generator> generators_;
  std::vector<Call> calls_;
  std::vector<Stage> stages_;
  std::size_t once_ = 0;  ///< the first stages, which the first run alone does
  bool ran_before_ = false;
  bool keeps_everything_ = false;
  const Call* running_ = nullptr;
  std::size_t first_decided_ = 0;  ///< the first call after Bound::last_deciding_op
  bool is_decided_ = false;
  Undo undo_;
  torch::jit::Stack stack_;
  std::optional<HostNumbers> numbers_;
  std::optional<Seeks> seeks_;
  CallResults results_;
  RunLog log_;                            ///< of the run under way
  live::Exchanges* exchanges_ = nullptr;  ///< the same
};

}  // namespace

Program plan(std::shared_ptr<const trace::Recording> recording, const PassOptions& options) {
  const auto fills_results = [](const c10::FunctionSchema& schema) {
    return KernelTable::all().fills_results(schema);
  };
  return replayer::plan(std::move(recording), fills_results, options);
}

std::unique_ptr<Executor> make_executor(Program program, const GeneratorOf& generator) {
  return std::make_unique<CpuExecutor>(std::move(program), generator);
}

}  // namespace steptape::replayer::cpu
