#include "replayer/player/player_variant.h"

#include <ATen/MemoryOverlap.h>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <optional>
#include <set>
#include <utility>

#include "guards/ambient_guard.h"
#include "guards/entry.h"
#include "guards/mismatch.h"
#include "guards/varying_numbers.h"
#include "live/contents.h"
#include "live/tensors.h"
#include "replayer/planner/numbers/bindings.h"
#include "replayer/player/spec_words.h"
#include "replayer/runtime/backends.h"
#include "replayer/runtime/tensor_on.h"
#include "replayer/runtime/uses.h"
#include "steptape/error.h"
#include "trace/numbers.h"
#include "trace/path.h"
#include "trace/text/text.h"

namespace steptape::replayer {
namespace {

/// Switches of autograd: the ops of a trace lie below it.
const std::set<std::string> kAboveTheTrace = {"grad_mode", "inference_mode", "anomaly_mode",
                                              "saved_tensor_hooks", "view_replay"};

GeneratorOf generators_of(PlayerState& state) {
  return [&state](const std::string& path) { return state.generator(path); };
}

/// Whether the state's memory may stand for the buffer that was recorded; it may be larger.
Verdict check_memory(const trace::Buffer& buffer, const c10::StorageImpl& storage) {
  if (storage.nbytes() < buffer.bytes) {
    return guards::bytes_mismatch(buffer.path, buffer, storage);
  }
  return guards::alignment_mismatch(buffer.path, buffer, storage.data());
}

bool is_outside(const trace::Buffer& buffer) { return trace::is_outside_path(buffer.path); }

/// The number that a front end has written as Python does; none in other words.
trace::Value number_in(const std::string& words) {
  const auto read = [&words](auto& value) {
    const auto [end, error] = std::from_chars(words.data(), words.data() + words.size(), value);
    return error == std::errc() && end == words.data() + words.size();
  };
  std::int64_t integer = 0;
  if (read(integer)) return {integer};
  double real = 0;
  return read(real) ? trace::Value{trace::Real{real}} : trace::Value{};
}

Error lacks(const std::string& what) {
  return {ErrorCode::kUnsupported,
          "the trace holds no " + what +
              "; save it with its state (State::kWith, in Python state=True)"};
}

}  // namespace

PlayerVariant::PlayerVariant(std::shared_ptr<const trace::Recording> recording,
                             const std::string& step, PlayerState& state)
    : recording_(std::move(recording)),
      state_(state),
      step_(step),
      executor_(make_executor(recording_, generators_of(state))),
      inputs_(*recording_, guards::positions_of(*recording_, executor_->bound())),
      windows_(*recording_, executor_->bound()),
      overlap_(*recording_, executor_->bound(),
               guards::with_windows(*recording_, executor_->written_buffers())),
      bounds_(*recording_),
      proofs_(NumberProofs::of_file(*recording_)) {
  find_carried();
  find_memory();
  find_uses();
  find_numbers();
  plan_us_ = planning_.us();
}

void PlayerVariant::find_carried() {
  carried_in_.resize(recording_->inputs.size());
  for (const trace::HeldPlace& held : recording_->held) {
    if (held.rule == trace::HeldPlace::Rule::kLost) {
      throw Error(ErrorCode::kUnsupported,
                  "what the step finds in " + held.path +
                      " is more than players hold: tensors alone, without numbers or texts beside "
                      "them, each in memory of its own and of one layout");
    }
    if (held.rule == trace::HeldPlace::Rule::kCarried && state_.kind(held.path) == nullptr)
      throw lacks("tensor of " + held.path + ", which the step goes on from");
    state_.know_kind(held.path, held.found);
    state_.know_kind(held.path, held.left);
  }
  for (const trace::HeldInput& place : recording_->places) {
    if (place.input == trace::kNone) continue;
    PlayerState::Carried found;
    if (place.is_carried) {
      found.geometry = trace::tensor_in(*recording_, place);
      const trace::Buffer& buffer = recording_->buffers[std::exchange(found.geometry.buffer, 0)];
      found.bytes = buffer.bytes;
      found.device = live::device_of(buffer.device);
      found.path = trace::first_in_memory_of(*recording_, place).path;
      carried_in_[place.input] = found.path;
    }
    if (!state_.carry(place.path, found)) {
      throw Error(ErrorCode::kUnsupported,
                  "a tensor of another layout goes on in " + place.path + " in each variant");
    }
    if (place.is_carried && is_of_kind(place) && !is_held(found))
      throw lacks("tensor of " + place.path + ", which the step goes on from");
  }
}

/// Whether its place is found now as the step was recorded, or nobody has said how.
bool PlayerVariant::is_of_kind(const trace::HeldInput& place) const {
  if (place.place == trace::kNone) return true;
  const trace::HeldPlace& held = recording_->held[place.place];
  return *state_.kind(held.path) == held.found;
}

bool PlayerVariant::is_held(const PlayerState::Carried& found) const {
  return state_.holds(found.path) && state_.storage(found.path).nbytes() == found.bytes;
}

/// What the step leaves in places that were empty, where another variant finds it.
void PlayerVariant::join_carried() {
  for (const trace::HeldInput& place : recording_->places) {
    if (place.input != trace::kNone || !place.is_carried) continue;
    const PlayerState::Carried* found = state_.carried(place.path);
    if (found == nullptr) continue;  // no variant goes on from it
    trace::Tensor left = trace::tensor_in(*recording_, place);
    left.buffer = found->geometry.buffer;
    left.offset = found->geometry.offset;
    if (left == found->geometry && found->path == place.path) continue;
    throw Error(ErrorCode::kUnsupported,
                "a tensor of another layout goes on in " + place.path + " in each variant");
  }
}

Verdict PlayerVariant::check_places() const {
  for (const trace::HeldPlace& held : recording_->held) {
    if (held.rule != trace::HeldPlace::Rule::kCarried) continue;
    if (*state_.kind(held.path) == held.found) continue;
    return guards::failed(GuardKind::kPresence, held.path, "what was recorded",
                          "of another kind, such as None");
  }
  for (const trace::HeldInput& place : recording_->places) {
    if (!place.is_carried || place.input == trace::kNone) continue;
    if (!is_held(*state_.carried(place.path)))
      return guards::failed(GuardKind::kPresence, place.path, "a tensor", "none");
  }
  return {};
}

at::Tensor PlayerVariant::carried(const trace::HeldInput& place) const {
  const std::string& path = carried_in_[place.input];
  if (!state_.holds(path)) return {};  // `check` finds out
  return tensor_on(state_.storage(path), trace::tensor_in(*recording_, place));
}

void PlayerVariant::find_memory() {
  std::string missing;
  for (const trace::BufferId id : executor_->bound()) {
    const trace::Buffer& buffer = recording_->buffers[id];
    const std::size_t position = lasting_.size();
    lasting_.push_back(nullptr);
    if (buffer.role == trace::Role::kInput) continue;
    if (buffer.role == trace::Role::kGradient) {
      gradients_.push_back(position);
    } else if (is_outside(buffer) && buffer.content) {
      lasting_.back() = copy_outside(buffer);
    } else if (!is_outside(buffer) && state_.holds(buffer.path) &&
               state_.storage(buffer.path).nbytes() >= buffer.bytes &&
               live::device_of(state_.storage(buffer.path).device()) == buffer.device) {
      held_.push_back({position});
    } else if (executor_->program().buffers[id].last_use >= 0) {
      // one that the step only looked at, such as at its shape, is not in a trace's state
      missing += (missing.empty() ? "" : ", ") + buffer.path;
    }
  }
  for (const trace::TensorId id : recording_->results) {
    if (id == trace::kNoTensor) continue;
    const trace::BufferId buffer = recording_->tensors[id].buffer;
    if (executor_->program().buffers[buffer].placement != Placement::kBound) continue;
    const trace::Buffer& found = recording_->buffers[buffer];
    if (found.role != trace::Role::kInput && !state_.holds(found.path))
      missing += " (result) " + found.path;
  }
  if (!missing.empty()) {
    throw lacks("bytes of " + missing);
  }
  for (std::size_t i = 0; i < recording_->exit_gradients.size(); ++i) {
    const trace::ExitGradient& exit = recording_->exit_gradients[i];
    if (exit.is_memory) given_.emplace_back(i, entry_of(exit));
  }
  for (const trace::Effect& effect : recording_->effects) {
    constexpr std::string_view kOfTheProgram = "host.";
    const std::string place = effect.name.starts_with(kOfTheProgram)
                                  ? effect.name.substr(kOfTheProgram.size())
                                  : effect.name;
    const std::vector<std::string> parts = state_.numbers_at(place);
    const auto is_set = [this](const std::string& path) { return becomes(path); };
    if (parts.empty() ? !effect.decides : std::ranges::all_of(parts, is_set)) continue;
    const trace::Value constant = number_in(effect.value);
    if (trace::is_exact_number(constant) && parts == std::vector{place}) {
      resets_.emplace_back(state_.number(place), constant);
      continue;
    }
    throw Error(ErrorCode::kUnsupported,
                "the step sets " + place + (effect.place.empty() ? "" : " at " + effect.place) +
                    ", which players do not; set it between the steps that are recorded");
  }
  bind_state();
}

/// The state has memory by path: what takes the place of that is to be as the step finds it.
trace::BufferId PlayerVariant::entry_of(const trace::ExitGradient& given) const {
  const auto entry = std::ranges::find(recording_->tracked, given.parameter, &trace::Tracked::path);
  const trace::Tensor& before = recording_->tensors[entry->tensor];
  const trace::Tensor& after = recording_->tensors[given.tensor];
  const auto is_on = [this](trace::BufferId buffer) {
    return [this, buffer](trace::TensorId id) {
      return id != trace::kNoTensor && recording_->tensors[id].buffer == buffer;
    };
  };
  trace::Tensor moved = before;
  moved.buffer = after.buffer;
  const bool is_alike = moved == after && recording_->buffers[before.buffer].bytes ==
                                              recording_->buffers[after.buffer].bytes;
  const bool is_alone = std::ranges::count_if(recording_->tracked, is_on(before.buffer),
                                              &trace::Tracked::tensor) == 1 &&
                        std::ranges::count_if(recording_->exit_gradients, is_on(after.buffer),
                                              &trace::ExitGradient::tensor) == 1 &&
                        std::ranges::none_of(recording_->results, is_on(after.buffer));
  if (is_alike && is_alone) return before.buffer;
  throw Error(ErrorCode::kUnsupported, "the step gives " + given.parameter +
                                           " memory of another layout, or which it shares, and "
                                           "players do not; write it in place");
}

void PlayerVariant::bind_state() {
  for (Held& held : held_) {
    held.storage = state_.storage(buffer_at(held.position).path).unsafeGetStorageImpl();
    lasting_[held.position] = held.storage->mutable_data();
  }
  bound_version_ = state_.version();
}

/// The caller shares tensors of the state, and may have moved their memory: to where other
/// processes reach it, say.
Verdict PlayerVariant::follow_state() {
  if (state_.version() != bound_version_) bind_state();
  for (const Held& held : held_) {
    if (held.storage->data() == lasting_[held.position]) continue;
    const trace::Buffer& buffer = buffer_at(held.position);
    if (Verdict verdict = check_memory(buffer, *held.storage); !verdict) return verdict;
    lasting_[held.position] = held.storage->mutable_data();
  }
  return {};
}

void PlayerVariant::find_uses() {
  const auto look = [this](trace::TensorId id) {
    uses_gradients_ |=
        id != trace::kNoTensor &&
        recording_->buffers[recording_->tensors[id].buffer].role == trace::Role::kGradient;
  };
  for (const trace::Op& op : recording_->ops) for_each_tensor_of(op, look);
  for (const trace::TensorId id : recording_->results) look(id);
  for (const trace::ExitGradient& gradient : recording_->exit_gradients) {
    if (gradient.is_memory) continue;
    const auto entry =
        std::ranges::find(recording_->tracked, gradient.parameter + ".grad", &trace::Tracked::path);
    const bool stays = entry != recording_->tracked.end() ? entry->tensor == gradient.tensor
                                                          : gradient.tensor == trace::kNoTensor;
    uses_gradients_ |= !stays;
  }
  const auto is_state = [this](trace::BufferId id) {
    return recording_->buffers[id].role != trace::Role::kInput &&
           !is_outside(recording_->buffers[id]);
  };
  const auto leaves_one = [](const trace::Number& number) { return !number.becomes.empty(); };
  writes_state_ = uses_gradients_ || carries() || !given_.empty() ||
                  !recording_->advances.empty() || !recording_->updates.empty() ||
                  std::ranges::any_of(recording_->numbers, leaves_one) || !resets_.empty() ||
                  std::ranges::any_of(executor_->written_buffers(), is_state);
}

std::vector<std::string> PlayerVariant::state_paths() const {
  std::vector<std::string> paths;
  for (const Held& held : held_) paths.push_back(buffer_at(held.position).path);
  for (const trace::TensorId id : recording_->results) {
    if (id == trace::kNoTensor) continue;
    const trace::Buffer& buffer = recording_->buffers[recording_->tensors[id].buffer];
    if (buffer.role != trace::Role::kGradient && state_.holds(buffer.path))
      paths.push_back(buffer.path);
  }
  return paths;
}

std::uint64_t PlayerVariant::constant_bytes() const {
  std::uint64_t bytes = 0;
  for (const c10::Storage& storage : outside_) bytes += storage.nbytes();
  const std::vector<BufferPlan>& plans = executor_->program().buffers;
  for (std::size_t i = 0; i < plans.size(); ++i) {
    if (plans[i].placement == Placement::kConstant) bytes += recording_->buffers[i].bytes;
  }
  return bytes;
}

void* PlayerVariant::copy_outside(const trace::Buffer& buffer) {
  outside_.push_back(allocate_with(std::as_bytes(std::span(*buffer.content)).first(buffer.bytes),
                                   buffer.address_mod_64, live::device_of(buffer.device)));
  return outside_.back().mutable_data();
}

/// Every number that a formula starts from must be in the trace; hyperparameters without formulas
/// must stay as they were recorded.
bool PlayerVariant::becomes(const std::string& path) const {
  return std::ranges::find(recording_->numbers, path, &trace::Number::becomes) !=
         recording_->numbers.end();
}

void PlayerVariant::find_numbers() {
  for (const trace::Leaf& leaf : recording_->leaves) {
    const bool saved =
        leaf.kind == trace::LeafKind::kHyperparameter || leaf.kind == trace::LeafKind::kStateNumber;
    if (!saved || state_.number(leaf.path)) continue;
    throw lacks("value of " + leaf.path);
  }
  for (const trace::Number& number : recording_->numbers) {
    if (trace::is_exact_number(number.value)) continue;
    throw Error(ErrorCode::kUnsupported, "the step returns " + trace::words_of(number.value) +
                                             ", which players cannot: they return doubles");
  }
  for (const trace::NamedValue& value : recording_->host_values) {
    if (!trace::is_number(value.value)) continue;
    // a place of the program's that held something else when the trace was saved
    if (state_.number(value.name) == nullptr && becomes(value.name)) {
      throw Error(ErrorCode::kUnsupported,
                  "the trace holds no number of " + value.name + ", which the step goes on from");
    }
    state_.declare(value.name, value.value, *recording_);
  }
  for (const trace::NamedValue& fact : recording_->facts) {
    if (trace::is_number(fact.value)) state_.declare(fact.name, fact.value, *recording_);
  }
  for (const trace::Input& input : recording_->inputs) {
    if (trace::is_number(input.value))
      state_.declare(step_ + "." + input.path, input.value, *recording_);
  }
  for (const trace::Lookup& lookup : recording_->lookups) {
    if (state_.number(lookup.name) == nullptr) continue;
    std::vector<std::string> under;
    for (const trace::Leaf& leaf : lookup.under) {
      const bool is_argument = leaf.kind == trace::LeafKind::kArgument;
      under.push_back(is_argument ? step_ + "." + leaf.path : leaf.path);
    }
    state_.declare_lookup(lookup.name, std::move(under));
    lookups_.push_back(lookup.name);
  }
}

std::vector<std::string> PlayerVariant::structures() const {
  std::vector<std::string> structures;
  for (trace::Index i = 0; i < recording_->inputs.size(); ++i) {
    if (const auto* text = std::get_if<std::string>(&recording_->inputs[i].value.data))
      structures.push_back(*text);
  }
  // the last one describes the places, which check_places looks at
  if (!recording_->held.empty() && !structures.empty()) structures.pop_back();
  return structures;
}

void PlayerVariant::join(bool checks_training, bool are_alike) {
  join_carried();
  leaves_ = recorded_leaves(*recording_);
  for (std::size_t i = 0; i < leaves_.size(); ++i) {
    const trace::Leaf& leaf = recording_->leaves[i];
    const bool is_argument = leaf.kind == trace::LeafKind::kArgument;
    if (const trace::Value* number = state_.number(leaf.path); number != nullptr && !is_argument) {
      numbers_.push_back({i, number});
    }
  }
  for (const trace::Input& input : recording_->inputs) {
    // of another kind it is another variant's: nothing tells then which of the two is meant
    const std::string path = step_ + "." + input.path;
    const trace::Value* set = state_.number(path);
    const bool is_its_own = set != nullptr && set->data.index() == input.value.data.index() &&
                            (are_alike || state_.was_set(path));
    argument_numbers_.push_back(is_its_own ? set : nullptr);
  }
  const auto expect = [this](GuardKind kind, const std::string& name, const trace::Value& value,
                             bool once_set = false) {
    if (const trace::Value* found = state_.number(name)) {
      facts_.push_back({kind, name, value, found, once_set});
    }
  };
  for (const trace::NamedValue& value : recording_->host_values) {
    if (value.value == trace::Value()) continue;
    if (trace::find_leaf(*recording_, trace::LeafKind::kHostValue, value.name) == trace::kNone) {
      expect(GuardKind::kHostValue, value.name, value.value);
    }
  }
  for (const trace::NamedValue& fact : recording_->facts)
    expect(GuardKind::kFact, fact.name, fact.value);
  for (const trace::OptimizerLayout& optimizer : recording_->optimizers) {
    for (std::size_t g = 0; g < optimizer.groups.size(); ++g) {
      for (const trace::NamedValue& named : optimizer.groups[g].hyperparameters) {
        // a number that no op takes may be any
        const bool may_move = optimizer.has_formulas && trace::is_exact_number(named.value) &&
                              !std::holds_alternative<bool>(named.value.data);
        if (may_move) continue;
        const std::string name = trace::group_path(optimizer.path, g) + "." + named.name;
        trace::for_each_number(name, named.value,
                               [&](const std::string& path, const trace::Value& value) {
                                 const auto kind = trace::LeafKind::kHyperparameter;
                                 if (trace::find_leaf(*recording_, kind, path) != trace::kNone)
                                   return;
                                 expect(GuardKind::kHyperparameter, path, value);
                               });
      }
    }
  }
  for (const trace::Module& module : recording_->modules) {
    expect(GuardKind::kTraining, module.path + ".training", {module.training}, !checks_training);
  }
  for (const trace::Advance& advance : recording_->advances) {
    if (trace::Value* counter = state_.number(advance.path)) {
      advances_.push_back({counter, advance.by});
    }
  }
  for (std::size_t i = 0; i < recording_->numbers.size(); ++i) {
    if (trace::Value* number = state_.number(recording_->numbers[i].becomes))
      becoming_.push_back({i, number});
  }
}

bool PlayerVariant::takes(std::span<const at::Tensor> inputs) const {
  std::size_t next = 0;
  for (std::size_t i = 0; i < recording_->inputs.size(); ++i) {
    const auto* tensor = std::get_if<trace::TensorRef>(&recording_->inputs[i].value.data);
    if (tensor == nullptr || !carried_in_[i].empty()) continue;
    if (next == inputs.size()) return false;
    const at::Tensor& given = inputs[next++];
    if (tensor->id == trace::kNoTensor || !given.defined()) continue;
    const trace::Tensor& expected = recording_->tensors[tensor->id];
    if (!guards::has_geometry(given, expected, live::scalar_type_of(expected.dtype))) return false;
  }
  return next == inputs.size();
}

std::span<const live::Argument> PlayerVariant::arguments_of(std::span<const at::Tensor> inputs) {
  arguments_.clear();
  std::size_t next = 0;
  for (std::size_t i = 0; i < recording_->inputs.size(); ++i) {
    const trace::Input& input = recording_->inputs[i];
    if (!carried_in_[i].empty()) {
      const auto position = static_cast<trace::Index>(i);
      arguments_.push_back({carried(*trace::place_of(*recording_, position)), {}, true});
    } else if (std::holds_alternative<trace::TensorRef>(input.value.data)) {
      if (next == inputs.size()) break;
      arguments_.push_back({brought(input, inputs[next++]), {}, true});
    } else {
      const trace::Value* set = argument_numbers_[i];
      arguments_.push_back({{}, set != nullptr ? *set : input.value, false});
    }
  }
  for (; next < inputs.size(); ++next) arguments_.push_back({inputs[next], {}, true});
  return arguments_;
}

/// A tensor of the host for an input on a device is brought there, unless the step writes it: that
/// the caller would not see.
at::Tensor PlayerVariant::brought(const trace::Input& input, const at::Tensor& given) const {
  const trace::TensorId id = std::get<trace::TensorRef>(input.value.data).id;
  if (id == trace::kNoTensor || !given.defined() || !given.is_cpu()) return given;
  const trace::BufferId buffer = recording_->tensors[id].buffer;
  const trace::Device& device = recording_->buffers[buffer].device;
  if (device.kind == trace::DeviceKind::kCpu) return given;
  const std::vector<trace::BufferId> written = executor_->written_buffers();
  const bool is_written = std::ranges::find(written, buffer) != written.end();
  return is_written ? given : given.to(live::device_of(device));
}

void PlayerVariant::forget_arguments() { arguments_.clear(); }

Verdict PlayerVariant::check_facts() {
  for (const Fact& fact : facts_) {
    if (*fact.found == fact.expected) continue;
    if (fact.once_set && !state_.was_set(fact.name)) continue;
    return guards::failed(fact.kind, fact.name, trace::words_of(fact.expected),
                          trace::words_of(*fact.found));
  }
  for (const std::string& name : lookups_) {
    const std::string under = state_.stale_under(name);
    if (under.empty()) continue;
    const trace::Value* now = state_.number(under);
    return guards::failed(GuardKind::kHostValue, name,
                          fmt::format("what the program has there for {} = {} (set it after that)",
                                      under, now == nullptr ? "?" : trace::words_of(*now)),
                          fmt::format("{} of another", trace::words_of(*state_.number(name))));
  }
  return {};
}

Verdict PlayerVariant::check(std::span<const live::Argument> arguments) {
  if (Verdict verdict = check_places(); !verdict) return verdict;
  if (Verdict verdict = follow_state(); !verdict) return verdict;
  memory_ = lasting_;
  for (const std::size_t i : gradients_) {
    const trace::Buffer& buffer = buffer_at(i);
    if (!state_.holds(buffer.path)) continue;
    c10::StorageImpl& storage = *state_.storage(buffer.path).unsafeGetStorageImpl();
    if (Verdict verdict = check_memory(buffer, storage); !verdict) return verdict;
    memory_[i] = storage.mutable_data();
  }
  for (const trace::Tracked& tracked : recording_->tracked) {
    if (tracked.role != trace::Role::kGradient) continue;
    const bool there = state_.has_gradient(tracked.path);
    if (there != (tracked.tensor != trace::kNoTensor)) {
      return guards::failed(GuardKind::kPresence, tracked.path, there ? "None" : "defined",
                            there ? "defined" : "None");
    }
  }
  if (Verdict verdict = check_facts(); !verdict) return verdict;
  for (const auto& [leaf, number] : numbers_) leaves_[leaf] = trace::number_of(*number);
  if (Verdict verdict = inputs_.check(arguments, leaves_); !verdict) return verdict;
  if (Verdict verdict = check_hooks(arguments); !verdict) return verdict;
  if (Verdict verdict = bounds_.check(arguments); !verdict) return verdict;
  if (Verdict verdict = inputs_.place(arguments, memory_); !verdict) return verdict;
  if (Verdict verdict = windows_.place(leaves_, memory_); !verdict) return verdict;
  if (Verdict verdict = guards::check_predicates(*recording_, leaves_); !verdict) return verdict;
  if (Verdict verdict = overlap_.check(memory_, ++checks_); !verdict) return verdict;
  return check_ambient();
}

/// What hooks of arguments did is in the recording, and no other hook is called.
Verdict PlayerVariant::check_hooks(std::span<const live::Argument> arguments) const {
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const trace::Input& input = recording_->inputs[i];
    if (!input.requires_grad || !arguments[i].tensor.defined()) continue;
    const Verdict verdict = guards::hooks_mismatch(input.path, live::Hooks(), arguments[i].tensor);
    if (!verdict) return verdict;
  }
  return {};
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

Results PlayerVariant::run(std::span<const live::Argument> arguments,
                           std::vector<StageTime>* times) {
  std::optional<PlayerState::DefaultGenerator> generator;
  if (executor_->draws_random()) generator.emplace(state_);
  const Outcome outcome = executor_->run({.memory = memory_,
                                          .numbers = {.leaves = leaves_, .proofs = &proofs_},
                                          .inspection = {.times = times}});
  generator.reset();
  Results results;
  results.numbers = outcome.numbers;
  for (std::size_t i = 0; i < result_count(); ++i) {
    results.tensors.push_back(result_of(i, outcome, arguments));
  }
  settle_gradients(outcome, arguments);
  carry_on(outcome, arguments);
  move_on(results.numbers);
  return results;
}

void PlayerVariant::run_into(std::span<const live::Argument> arguments,
                             std::span<const at::Tensor> results, std::vector<double>& numbers) {
  if (writes_state_) {
    Results made = run(arguments);
    numbers = std::move(made.numbers);
    for (std::size_t i = 0; i < results.size(); ++i) copy_onto(made.tensors[i], results[i]);
    return;
  }
  std::optional<PlayerState::DefaultGenerator> generator;
  if (executor_->draws_random()) generator.emplace(state_);
  executor_->run_into({.memory = memory_, .numbers = {.leaves = leaves_, .proofs = &proofs_}},
                      results, numbers);
  move_on(numbers);
}

void PlayerVariant::require_fits(std::span<const at::Tensor> results) const {
  const auto refuse = [this](const std::string& what) {
    throw Error(ErrorCode::kInvalidArgument,
                "step \"" + step_ + "\" cannot write its results there: " + what);
  };
  if (results.size() != result_count()) {
    refuse(std::to_string(results.size()) + " tensors for " + std::to_string(result_count()) +
           " results");
  }
  for (std::size_t i = 0; i < results.size(); ++i) {
    const std::string path = "results[" + std::to_string(i) + "]";
    const trace::TensorId id = recording_->results[i];
    if (id == trace::kNoTensor) refuse(path + " is none; call run()");
    const trace::Tensor& expected = recording_->tensors[id];
    if (!results[i].defined() || results[i].requires_grad() ||
        !guards::has_geometry(results[i], expected, live::scalar_type_of(expected.dtype))) {
      refuse(path + " is not " + words_of(expected));
    }
    if (at::has_internal_overlap(results[i]) != at::MemOverlap::No)
      refuse("elements of " + path + " share memory");
    require_apart(i, results, refuse);
  }
}

/// Result `index` lies over nothing that a run reads or writes, and over no result before it.
template <typename Refuse>
void PlayerVariant::require_apart(std::size_t index, std::span<const at::Tensor> results,
                                  const Refuse& refuse) const {
  const at::Tensor& result = results[index];
  if (result.numel() == 0) return;
  const std::string path = "results[" + std::to_string(index) + "]";
  const Use own = Use::of(result, /*is_write=*/true);
  for (std::size_t i = 0; i < index; ++i) {
    if (own.overlaps(Use::of(results[i], true)))
      refuse(path + " lies over results[" + std::to_string(i) + "]");
  }
  for (std::size_t i = 0; i < memory_.size(); ++i) {
    const trace::Buffer& buffer = recording_->buffers[executor_->bound()[i]];
    const auto begin = reinterpret_cast<std::uintptr_t>(memory_[i]);
    if (begin != 0 && begin < own.end && own.begin < begin + buffer.bytes)
      refuse(path + " lies over " + buffer.path);
  }
}

void PlayerVariant::move_on(const std::vector<double>& numbers) {
  for (const auto& [counter, by] : advances_) {
    *counter = {static_cast<std::int64_t>(trace::number_of(*counter)) + by};
  }
  for (const auto& [position, number] : becoming_) {
    const bool is_integer =
        std::holds_alternative<std::int64_t>(recording_->numbers[position].value.data);
    *number = is_integer ? trace::Value{static_cast<std::int64_t>(numbers[position])}
                         : trace::Value{trace::Real{numbers[position]}};
  }
  for (const auto& [number, constant] : resets_) *number = constant;
  ++replays_;
}

void PlayerVariant::settle_gradients(const Outcome& outcome,
                                     std::span<const live::Argument> arguments) {
  for (std::size_t i = 0; i < recording_->exit_gradients.size(); ++i) {
    const trace::ExitGradient& gradient = recording_->exit_gradients[i];
    if (gradient.is_memory) continue;
    const std::string path = gradient.path();
    if (const trace::Index input = trace::find_input(*recording_, gradient.parameter);
        input != trace::kNone) {
      arguments[input].tensor.mutable_grad() = outcome.gradients[i];
      continue;
    }
    if (gradient.tensor == trace::kNoTensor) {
      state_.erase(path);
    } else if (outcome.gradients[i].defined()) {
      state_.put(path, outcome.gradients[i].storage());
    }
  }
  for (const auto& [exit, at] : given_) {
    // the state is of whoever shares it: it stays where it is
    const trace::Buffer& buffer = recording_->buffers[at];
    const c10::Device device = live::device_of(buffer.device);
    live::copy_bytes(state_.storage(buffer.path).mutable_data(), device,
                     outcome.gradients[exit].storage().data(), device, buffer.bytes);
  }
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const trace::Input& input = recording_->inputs[i];
    if (input.changes_requires_grad) arguments[i].tensor.set_requires_grad(!input.requires_grad);
  }
}

/// The tensors themselves, as the program holds them, whatever else their memory is of.
void PlayerVariant::carry_on(const Outcome& outcome, std::span<const live::Argument> arguments) {
  for (const trace::HeldInput& place : recording_->places) {
    if (place.is_carried && place.is_dropped) state_.erase(place.path);
    if (!place.is_carried || place.result == trace::kNone) continue;
    const PlayerState::Carried* found = state_.carried(place.path);
    if (found == nullptr || place.path != found->path) continue;
    const at::Tensor left = result_of(place.result, outcome, arguments);
    auto* first = static_cast<std::byte*>(left.mutable_data_ptr()) -
                  found->geometry.offset * static_cast<std::int64_t>(left.element_size());
    state_.put(place.path, storage_within(left.storage(), first, found->bytes));
  }
  for (const trace::HeldPlace& held : recording_->held) {
    if (held.rule == trace::HeldPlace::Rule::kCarried) state_.set_kind(held.path, held.left);
  }
}

at::Tensor PlayerVariant::result_of(std::size_t index, const Outcome& outcome,
                                    std::span<const live::Argument> arguments) const {
  const trace::TensorId id = recording_->results[index];
  if (id == trace::kNoTensor || outcome.results[index].defined()) return outcome.results[index];
  const trace::Tensor& geometry = recording_->tensors[id];
  const trace::Buffer& buffer = recording_->buffers[geometry.buffer];
  if (const trace::Index input = trace::input_on(*recording_, geometry.buffer);
      input != trace::kNone) {
    const auto& base = std::get<trace::TensorRef>(recording_->inputs[input].value.data);
    return alias_of(arguments[input].tensor, recording_->tensors[base.id], geometry);
  }
  const c10::Storage& storage = state_.storage(buffer.path);
  return state_.is_shared() ? copied_tensor_on(storage, geometry) : tensor_on(storage, geometry);
}

void require_beginning(const std::vector<std::unique_ptr<PlayerVariant>>& variants) {
  Verdict newest;
  for (const auto& variant : variants) {
    newest = variant->check_places();
    if (newest) return;
  }
  throw Error(
      ErrorCode::kUnsupported,
      "what stood in " + newest.path +
          " when the trace was saved is of another kind than in any call that was verified; "
          "run more calls before saving");
}

PlanStats PlayerVariant::stats() const {
  PlanStats stats = executor_->stats();
  stats.plan_us = plan_us_;
  stats.replays = replays_;
  return stats;
}

}  // namespace steptape::replayer
