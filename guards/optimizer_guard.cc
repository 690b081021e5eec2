#include "guards/optimizer_guard.h"

#include <algorithm>
#include <array>

#include "guards/mismatch.h"
#include "live/optimizer_layout.h"
#include "trace/numbers.h"
#include "trace/text/text.h"

namespace steptape::guards {
namespace {

using torch::optim::OptimizerParamGroup;
using torch::optim::OptimizerParamState;

/// So many states before its turn comes is one fetched from memory.
constexpr std::ptrdiff_t kStatesAhead = 8;

/// More than any options class has.
constexpr std::size_t kMostNumbers = 16;

const char* const kRecordedTensors = "the tensors it held when it was recorded";

bool same_tensors(const std::vector<at::Tensor>& now,
                  const std::vector<const c10::TensorImpl*>& then) {
  return std::equal(
      now.begin(), now.end(), then.begin(), then.end(),
      [](const at::Tensor& a, const c10::TensorImpl* b) { return a.unsafeGetTensorImpl() == b; });
}

std::vector<const c10::TensorImpl*> impls_of(const std::vector<at::Tensor>& tensors) {
  std::vector<const c10::TensorImpl*> impls;
  impls.reserve(tensors.size());
  for (const at::Tensor& tensor : tensors) impls.push_back(tensor.unsafeGetTensorImpl());
  return impls;
}

/// The tensors of a state that has no fixed fields; undefined ones are left out.
std::vector<const c10::TensorImpl*> counted_tensors(const OptimizerParamState& state) {
  std::vector<const c10::TensorImpl*> impls;
  for (const live::StateItem& item : live::state_items(state)) {
    if (const auto* tensor = std::get_if<at::Tensor>(&item.value)) {
      impls.push_back(tensor->unsafeGetTensorImpl());
    }
  }
  return impls;
}

}  // namespace

/// What the recording knows of state, by path.
class OptimizerGuard::Recorded {
 public:
  explicit Recorded(const trace::Recording& recording) : recording_(recording) {
    for (trace::Index i = 0; i < recording.leaves.size(); ++i) {
      if (recording.leaves[i].kind == trace::LeafKind::kStateNumber) {
        leaves_.emplace(recording.leaves[i].path, i);
      }
    }
    for (const trace::Advance& advance : recording.advances) {
      advances_.emplace(advance.path, advance.by);
    }
  }

  trace::Index leaf_of_hyperparameter(const std::string& path) const {
    return trace::find_leaf(recording_, trace::LeafKind::kHyperparameter, path);
  }
  trace::Index leaf_of_counter(const std::string& path) const {
    const auto found = leaves_.find(path);
    return found == leaves_.end() ? trace::kNone : found->second;
  }
  std::int64_t advance_of(const std::string& path) const {
    const auto found = advances_.find(path);
    return found == advances_.end() ? 0 : found->second;
  }

 private:
  const trace::Recording& recording_;
  std::unordered_map<std::string_view, trace::Index> leaves_;
  std::unordered_map<std::string_view, std::int64_t> advances_;
};

OptimizerGuard::OptimizerGuard(const trace::Recording& recording, const live::Objects& objects,
                               const live::Snapshot& snapshot) {
  const Recorded recorded(recording);
  for (const auto& [path, optimizer] : objects.optimizers()) {
    const auto layout =
        std::ranges::find(recording.optimizers, path, &trace::OptimizerLayout::path);
    optimizers_.push_back(watch(recorded, path, *optimizer, *layout, snapshot));
  }
  for (const Watched& watched : optimizers_) {
    for (const State& state : watched.states) {
      if (state.advance != 0) advances_.push_back({state.path + ".step", state.advance});
    }
  }
}

OptimizerGuard::Watched OptimizerGuard::watch(const Recorded& recorded, const std::string& path,
                                              torch::optim::Optimizer& optimizer,
                                              const trace::OptimizerLayout& layout,
                                              const live::Snapshot& snapshot) {
  Watched watched{path, &optimizer, {}, {}, {}, {}};
  const auto kind =
      layout.has_formulas ? VaryingNumbers::Kind::kFollowed : VaryingNumbers::Kind::kLiteral;
  const auto& groups = optimizer.param_groups();
  for (std::size_t g = 0; g < groups.size(); ++g) {
    Group group{trace::group_path(path, g), {}, {}, impls_of(groups[g].params())};
    group.fields = live::number_fields(groups[g]);
    for (const live::NumberField& field : group.fields) {
      const std::string number = group.path + "." + field.name;
      group.numbers.add(number, field.value(), recorded.leaf_of_hyperparameter(number), kind);
    }
    if (groups[g].has_options()) {
      group.options = &groups[g].options();
      group.type = &typeid(*group.options);
    }
    if (group.fields.empty()) group.literals = live::hyperparameters_of(groups[g]);
    watched.groups.push_back(std::move(group));
    for (const at::Tensor& parameter : groups[g].params()) {
      watched.parameters.emplace(parameter.unsafeGetTensorImpl(), snapshot.path_of(parameter));
    }
  }
  for (const auto& [key, object] : optimizer.state()) {
    State state{.key = key};
    if (const auto parameter = watched.parameters.find(key);
        parameter != watched.parameters.end() && object != nullptr) {
      state.is_known = true;
      state.path = trace::state_path(path, parameter->second);
      state.counter_leaf = recorded.leaf_of_counter(state.path + ".step");
      state.advance = recorded.advance_of(state.path + ".step");
      find_object(state, *object);
      if (!state.has_fields) state.tensors = counted_tensors(*object);
      for (const at::Tensor* field : state.fields) {
        state.tensors.push_back(field->unsafeGetTensorImpl());
      }
    }
    state.object = object.get();
    watched.order.push_back(static_cast<std::uint32_t>(watched.states.size()));
    watched.states.push_back(std::move(state));
  }
  return watched;
}

void OptimizerGuard::find_object(State& state, OptimizerParamState& object) {
  auto fields = live::tensor_fields(object);
  state.object = &object;
  state.type = &typeid(object);
  state.has_fields = fields.has_value();
  state.fields = std::move(fields).value_or(std::vector<const at::Tensor*>());
  state.counter = live::step_counter(object);
}

Verdict OptimizerGuard::check(Entry& entry) const {
  for (const Watched& watched : optimizers_) {
    if (Verdict verdict = check_groups(watched, entry); !verdict) return verdict;
    if (Verdict verdict = check_states(watched, entry); !verdict) return verdict;
  }
  return {};
}

Verdict OptimizerGuard::check_groups(const Watched& watched, Entry& entry) {
  const auto& groups = watched.optimizer->param_groups();
  if (groups.size() != watched.groups.size()) {
    return failed(GuardKind::kParameterGroups, watched.path + ".param_groups.size",
                  static_cast<std::int64_t>(watched.groups.size()),
                  static_cast<std::int64_t>(groups.size()));
  }
  for (std::size_t g = 0; g < groups.size(); ++g) {
    if (Verdict verdict = check_group(watched.groups[g], groups[g], entry); !verdict)
      return verdict;
  }
  return {};
}

/// False when the options are of another class.
bool OptimizerGuard::read_numbers(const Group& group, const OptimizerParamGroup& now,
                                  std::span<double> values) {
  const auto* options = now.has_options() ? &now.options() : nullptr;
  if (options != group.options || (options != nullptr && &typeid(*options) != group.type)) {
    std::vector<live::NumberField> fields = live::number_fields(now);
    if (!std::ranges::equal(fields, group.fields, {}, &live::NumberField::name,
                            &live::NumberField::name)) {
      return false;
    }
    group.options = options;
    group.type = options == nullptr ? nullptr : &typeid(*options);
    group.fields = std::move(fields);
  }
  for (std::size_t k = 0; k < group.fields.size(); ++k) values[k] = group.fields[k].value();
  return true;
}

Verdict OptimizerGuard::check_group(const Group& group, const OptimizerParamGroup& now,
                                    Entry& entry) {
  if (!same_tensors(now.params(), group.parameters)) {
    return failed(GuardKind::kParameterGroups, group.path + ".params",
                  "the parameters it held when it was recorded", "others");
  }
  std::array<double, kMostNumbers> values{};
  const auto other_class = [&group] {
    return failed(GuardKind::kHyperparameter, group.path, "options of the class they had",
                  "of another");
  };
  if (!read_numbers(group, now, values)) return other_class();
  if (Verdict verdict = group.numbers.check(values, entry); !verdict) return verdict;
  if (group.literals.empty()) return {};
  const std::vector<trace::NamedValue> found = live::hyperparameters_of(now);
  for (std::size_t i = 0; i < std::min(group.literals.size(), found.size()); ++i) {
    const trace::NamedValue& expected = group.literals[i];
    if (found[i] == expected) continue;
    return failed(GuardKind::kHyperparameter, group.path + "." + expected.name,
                  trace::words_of(expected.value), trace::words_of(found[i].value));
  }
  return found.size() == group.literals.size() ? Verdict() : other_class();
}

/// Whether the map holds the objects that it held before, in the same places. Walks it as it lies:
/// nothing is hashed.
bool OptimizerGuard::are_in_place(const Watched& watched, const Table& table) {
  if (table.size() != watched.states.size() || table.size() != watched.order.size()) return false;
  if (table.empty()) return true;
  const std::uint32_t* next = watched.order.data();
  const std::uint32_t* const last = next + watched.order.size() - 1;
  for (const auto& [key, object] : table) {
    __builtin_prefetch(watched.states[*std::min(next + kStatesAhead, last)].object);
    const State& state = watched.states[*next++];
    if (key != state.key || object.get() != state.object) return false;
    if (!state.is_known) continue;
    const OptimizerParamState& found = *object;
    if (&typeid(found) != state.type) return false;
  }
  return true;
}

/// Finds each state's object again, and names a state that is missing or was not there.
Verdict OptimizerGuard::find_states(const Watched& watched, const Table& table) {
  for (State& state : watched.states) {
    const auto found = table.find(const_cast<void*>(state.key));
    if (found == table.end()) {
      const std::string path = state.is_known ? state.path : watched.path + ".state";
      return failed(GuardKind::kOptimizerState, path, "there", "gone");
    }
    if (state.is_known && found->second == nullptr) {
      return failed(GuardKind::kOptimizerState, state.path, "there", "none");
    }
    if (state.is_known) find_object(state, *found->second);
    state.object = found->second.get();
  }
  std::unordered_map<const void*, std::uint32_t> by_key;
  for (std::uint32_t k = 0; k < watched.states.size(); ++k)
    by_key.emplace(watched.states[k].key, k);
  watched.order.clear();
  for (const auto& [key, object] : table) {
    if (const auto known = by_key.find(key); known != by_key.end()) {
      watched.order.push_back(known->second);
      continue;
    }
    const auto parameter = watched.parameters.find(key);
    const std::string name =
        parameter == watched.parameters.end() ? "a parameter of no group" : parameter->second;
    return failed(GuardKind::kOptimizerState, trace::state_path(watched.path, name), "none",
                  "a state");
  }
  return {};
}

bool OptimizerGuard::holds_tensors(const State& state) {
  if (!state.has_fields) return live::holds_tensors(*state.object, state.tensors);
  if (state.fields.size() != state.tensors.size()) return false;
  for (std::size_t k = 0; k < state.fields.size(); ++k) {
    if (state.fields[k]->unsafeGetTensorImpl() != state.tensors[k]) return false;
  }
  return true;
}

Verdict OptimizerGuard::check_states(const Watched& watched, Entry& entry) {
  const Table& table = watched.optimizer->state();
  if (!are_in_place(watched, table)) {
    if (Verdict verdict = find_states(watched, table); !verdict) return verdict;
  }
  for (const State& state : watched.states) {
    if (!state.is_known) continue;
    if (!holds_tensors(state)) {
      return failed(GuardKind::kOptimizerState, state.path, kRecordedTensors, "others");
    }
    if (state.counter_leaf == trace::kNone && state.advance == 0) continue;
    if (state.counter == nullptr) {
      return failed(GuardKind::kOptimizerState, state.path, "of the class it had", "of another");
    }
    if (state.counter_leaf == trace::kNone) continue;
    entry.leaves[state.counter_leaf] = static_cast<double>(*state.counter);
  }
  return {};
}

// the program's own code may have run since the newest check: the states are looked for
std::vector<std::int64_t> OptimizerGuard::counters() const {
  std::vector<std::int64_t> counters;
  for (const Watched& watched : optimizers_) {
    const Table& table = watched.optimizer->state();
    for (const State& state : watched.states) {
      if (state.advance == 0) continue;
      const auto found = table.find(const_cast<void*>(state.key));
      const bool is_there = found != table.end() && found->second != nullptr;
      const std::int64_t* counter = is_there ? live::step_counter(*found->second) : nullptr;
      counters.push_back(counter == nullptr ? 0 : *counter);
    }
  }
  return counters;
}

void OptimizerGuard::advance() const {
  for (const Watched& watched : optimizers_) {
    for (const State& state : watched.states) {
      if (state.advance != 0) *state.counter += state.advance;
    }
  }
}

}  // namespace steptape::guards
