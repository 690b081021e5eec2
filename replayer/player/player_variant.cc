#include "replayer/player/player_variant.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <optional>
#include <set>

#include "guards/ambient_guard.h"
#include "guards/mismatch.h"
#include "guards/positions.h"
#include "guards/predicates.h"
#include "replayer/cpu/tensor_on.h"
#include "replayer/numbers/bindings.h"
#include "replayer/passes/passes.h"
#include "steptape/error.h"
#include "trace/numbers.h"
#include "trace/path.h"
#include "trace/text.h"

namespace steptape::replayer {
namespace {

/// Switches of autograd: the ops of a trace lie below it.
const std::set<std::string> kAboveTheTrace = {"grad_mode", "inference_mode", "anomaly_mode",
                                              "saved_tensor_hooks"};

cpu::GeneratorOf generators_of(PlayerState& state) {
  return [&state](const std::string& path) { return state.generator(path); };
}

bool is_outside(const trace::Buffer& buffer) { return trace::is_outside_path(buffer.path); }

}  // namespace

PlayerVariant::PlayerVariant(std::shared_ptr<const trace::Recording> recording,
                             const std::string& step, PlayerState& state)
    : recording_(std::move(recording)),
      state_(state),
      step_(step),
      plan_us_(-std::chrono::duration<double, std::micro>(
                    std::chrono::steady_clock::now().time_since_epoch())
                    .count()),
      executor_(plan(recording_, {}), generators_of(state)),
      inputs_(*recording_, guards::positions_of(*recording_, executor_.bound())),
      overlap_(*recording_, executor_.bound(), executor_.written_buffers()) {
  find_memory();
  find_numbers();
  plan_us_ +=
      std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch())
          .count();
}

void PlayerVariant::find_memory() {
  std::string missing;
  for (const trace::BufferId id : executor_.bound()) {
    const trace::Buffer& buffer = recording_->buffers[id];
    const std::size_t position = lasting_.size();
    lasting_.push_back(nullptr);
    if (buffer.role == trace::Role::kInput) continue;
    if (buffer.role == trace::Role::kGradient) {
      gradients_.push_back(position);
    } else if (is_outside(buffer) && buffer.content) {
      lasting_.back() = copy_outside(buffer);
    } else if (!is_outside(buffer) && state_.holds(buffer.path) &&
               state_.storage(buffer.path).nbytes() >= buffer.bytes) {
      lasting_.back() = state_.storage(buffer.path).mutable_data();
    } else {
      missing += (missing.empty() ? "" : ", ") + buffer.path;
    }
  }
  for (const trace::TensorId id : recording_->results) {
    if (id == trace::kNoTensor) continue;
    const trace::BufferId buffer = recording_->tensors[id].buffer;
    if (executor_.program().buffers[buffer].placement != Placement::kBound) continue;
    const trace::Buffer& found = recording_->buffers[buffer];
    if (found.role != trace::Role::kInput && !state_.holds(found.path))
      missing += " (result) " + found.path;
  }
  if (missing.empty()) return;
  throw Error(ErrorCode::kUnsupported, "the trace holds no bytes of " + missing +
                                           "; save it with Session::save(path, State::kWith)");
}

void* PlayerVariant::copy_outside(const trace::Buffer& buffer) {
  outside_.push_back(cpu::allocate(buffer.bytes, buffer.address_mod_64));
  if (buffer.bytes != 0) {
    std::memcpy(outside_.back().mutable_data(), buffer.content->data(), buffer.bytes);
  }
  return outside_.back().mutable_data();
}

/// Every number that a formula starts from must be in the trace; hyperparameters without formulas
/// must stay as they were recorded.
void PlayerVariant::find_numbers() {
  for (const trace::Leaf& leaf : recording_->leaves) {
    const bool saved =
        leaf.kind == trace::LeafKind::kHyperparameter || leaf.kind == trace::LeafKind::kStateNumber;
    if (!saved || state_.number(leaf.path)) continue;
    throw Error(ErrorCode::kUnsupported, "the trace holds no value of " + leaf.path +
                                             "; save it with Session::save(path, State::kWith)");
  }
  for (const trace::NamedValue& value : recording_->host_values) {
    if (trace::is_number(value.value)) state_.declare(value.name, value.value);
  }
  for (const trace::NamedValue& fact : recording_->facts) {
    if (trace::is_number(fact.value)) state_.declare(fact.name, fact.value);
  }
  for (const trace::Input& input : recording_->inputs) {
    if (trace::is_number(input.value)) state_.declare(step_ + "." + input.path, input.value);
  }
}

void PlayerVariant::join(bool checks_training) {
  leaves_ = recorded_leaves(*recording_);
  for (std::size_t i = 0; i < leaves_.size(); ++i) {
    const trace::Leaf& leaf = recording_->leaves[i];
    const bool is_argument = leaf.kind == trace::LeafKind::kArgument;
    if (const trace::Value* number = state_.number(leaf.path); number != nullptr && !is_argument) {
      numbers_.push_back({i, number});
    }
  }
  for (const trace::Input& input : recording_->inputs) {
    argument_numbers_.push_back(state_.number(step_ + "." + input.path));
  }
  const auto expect = [this](GuardKind kind, const std::string& name, const trace::Value& value) {
    if (const trace::Value* found = state_.number(name)) {
      facts_.push_back({kind, name, value, found});
    }
  };
  for (const trace::NamedValue& value : recording_->host_values) {
    if (trace::find_leaf(*recording_, trace::LeafKind::kHostValue, value.name) == trace::kNone) {
      expect(GuardKind::kHostValue, value.name, value.value);
    }
  }
  for (const trace::NamedValue& fact : recording_->facts)
    expect(GuardKind::kFact, fact.name, fact.value);
  for (const trace::Module& module : recording_->modules) {
    if (checks_training) expect(GuardKind::kTraining, module.path + ".training", {module.training});
  }
  for (const trace::Advance& advance : recording_->advances) {
    if (trace::Value* counter = state_.number(advance.path)) {
      advances_.push_back({counter, advance.by});
    }
  }
}

std::vector<live::Argument> PlayerVariant::arguments_of(
    const std::vector<at::Tensor>& inputs) const {
  std::vector<live::Argument> arguments;
  std::size_t next = 0;
  for (std::size_t i = 0; i < recording_->inputs.size(); ++i) {
    const trace::Input& input = recording_->inputs[i];
    if (std::holds_alternative<trace::TensorRef>(input.value.data)) {
      if (next == inputs.size()) break;
      arguments.push_back({inputs[next++], {}, true});
    } else {
      const trace::Value* set = argument_numbers_[i];
      arguments.push_back({{}, set != nullptr ? *set : input.value, false});
    }
  }
  for (; next < inputs.size(); ++next) arguments.push_back({inputs[next], {}, true});
  return arguments;
}

Verdict PlayerVariant::check_facts() {
  for (const Fact& fact : facts_) {
    if (*fact.found == fact.expected) continue;
    return guards::failed(fact.kind, fact.name, trace::words_of(fact.expected),
                          trace::words_of(*fact.found));
  }
  return {};
}

Verdict PlayerVariant::check(std::span<const live::Argument> arguments) {
  memory_ = lasting_;
  for (const std::size_t i : gradients_) {
    const trace::Buffer& buffer = recording_->buffers[executor_.bound()[i]];
    if (state_.holds(buffer.path)) memory_[i] = state_.storage(buffer.path).mutable_data();
  }
  for (const trace::Tracked& tracked : recording_->tracked) {
    if (tracked.role != trace::Role::kGradient) continue;
    const bool there = state_.holds(tracked.path);
    if (there != (tracked.tensor != trace::kNoTensor)) {
      return guards::failed(GuardKind::kPresence, tracked.path, there ? "None" : "defined",
                            there ? "defined" : "None");
    }
  }
  if (Verdict verdict = check_facts(); !verdict) return verdict;
  for (const auto& [leaf, number] : numbers_) leaves_[leaf] = trace::number_of(*number);
  if (Verdict verdict = inputs_.check(arguments, leaves_); !verdict) return verdict;
  if (Verdict verdict = inputs_.place(arguments, memory_); !verdict) return verdict;
  if (Verdict verdict = guards::check_predicates(*recording_, leaves_); !verdict) return verdict;
  if (Verdict verdict = overlap_.check(memory_, ++checks_); !verdict) return verdict;
  return check_ambient();
}

Verdict PlayerVariant::check_ambient() {
  const live::Ambient now = live::Ambient::current();
  if (ambient_known_ && now == ambient_) return {};
  std::vector<trace::Fact> expected;
  for (const trace::Fact& fact : recording_->ambient) {
    if (!kAboveTheTrace.contains(fact.name)) expected.push_back(fact);
  }
  if (Verdict verdict = guards::compare_facts(expected, now.facts(), "ambient."); !verdict)
    return verdict;
  ambient_known_ = true;
  ambient_ = now;
  return {};
}

Results PlayerVariant::run(std::span<const live::Argument> arguments) {
  std::optional<PlayerState::DefaultGenerator> generator;
  if (executor_.draws_random()) generator.emplace(state_);
  const cpu::Outcome outcome = executor_.run(memory_, leaves_);
  generator.reset();
  Results results;
  results.numbers = outcome.numbers;
  for (std::size_t i = 0; i < recording_->results.size() - recording_->observed; ++i) {
    results.tensors.push_back(result_of(i, outcome, arguments));
  }
  settle_gradients(outcome);
  for (const auto& [counter, by] : advances_) {
    *counter = {static_cast<std::int64_t>(trace::number_of(*counter)) + by};
  }
  ++replays_;
  return results;
}

void PlayerVariant::settle_gradients(const cpu::Outcome& outcome) {
  for (std::size_t i = 0; i < recording_->exit_gradients.size(); ++i) {
    const trace::ExitGradient& gradient = recording_->exit_gradients[i];
    const std::string path = gradient.parameter + ".grad";
    if (gradient.tensor == trace::kNoTensor) {
      state_.erase(path);
    } else if (outcome.gradients[i].defined()) {
      state_.put(path, outcome.gradients[i].storage());
    }
  }
}

at::Tensor PlayerVariant::result_of(std::size_t index, const cpu::Outcome& outcome,
                                    std::span<const live::Argument> arguments) const {
  const trace::TensorId id = recording_->results[index];
  if (id == trace::kNoTensor || outcome.results[index].defined()) return outcome.results[index];
  const trace::Tensor& geometry = recording_->tensors[id];
  const trace::Buffer& buffer = recording_->buffers[geometry.buffer];
  for (std::size_t i = 0; i < recording_->inputs.size(); ++i) {
    const auto* input = std::get_if<trace::TensorRef>(&recording_->inputs[i].value.data);
    if (input == nullptr || input->id == trace::kNoTensor) continue;
    const trace::Tensor& base = recording_->tensors[input->id];
    if (base.buffer != geometry.buffer) continue;
    const at::Tensor& tensor = arguments[i].tensor;
    const auto first =
        static_cast<std::int64_t>(tensor.element_size()) * (tensor.storage_offset() - base.offset);
    return cpu::tensor_on(tensor.storage(), geometry, first);
  }
  return cpu::tensor_on(state_.storage(buffer.path), geometry);
}

PlanStats PlayerVariant::stats() const {
  PlanStats stats = executor_.stats();
  stats.plan_us = plan_us_;
  stats.replays = replays_;
  return stats;
}

}  // namespace steptape::replayer
