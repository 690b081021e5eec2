#include "guards/optimizer_guard.h"

#include <algorithm>
#include <array>

#include "guards/mismatch.h"
#include "live/optimizer_layout.h"
#include "trace/numbers.h"
#include "trace/text.h"

namespace steptape::guards {
namespace {

/// More than any options class has.
constexpr std::size_t kMostNumbers = 16;

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

std::vector<const c10::TensorImpl*> impls_of(const torch::optim::OptimizerParamState& state) {
  std::vector<const c10::TensorImpl*> impls;
  for (const live::StateItem& item : live::state_items(state)) {
    if (const auto* tensor = std::get_if<at::Tensor>(&item.value)) {
      impls.push_back(tensor->unsafeGetTensorImpl());
    }
  }
  return impls;
}

}  // namespace

OptimizerGuard::OptimizerGuard(const trace::Recording& recording, const live::Objects& objects,
                               const live::Snapshot& snapshot) {
  for (const auto& [path, optimizer] : objects.optimizers()) {
    const auto layout =
        std::ranges::find(recording.optimizers, path, &trace::OptimizerLayout::path);
    optimizers_.push_back(watch(recording, path, *optimizer, *layout, snapshot));
  }
  for (const Watched& watched : optimizers_) {
    for (const State& state : watched.states) {
      if (state.advance != 0) advances_.push_back({state.path + ".step", state.advance});
    }
  }
}

OptimizerGuard::Watched OptimizerGuard::watch(const trace::Recording& recording,
                                              const std::string& path,
                                              torch::optim::Optimizer& optimizer,
                                              const trace::OptimizerLayout& layout,
                                              const live::Snapshot& snapshot) {
  Watched watched{path, layout.type, &optimizer, {}, {}, optimizer.state().size()};
  const auto& groups = optimizer.param_groups();
  for (std::size_t g = 0; g < groups.size(); ++g) {
    Group group{trace::group_path(path, g), {}, {}, impls_of(groups[g].params())};
    const std::vector<std::string> names = live::number_names(groups[g]);
    std::array<double, kMostNumbers> values{};
    live::read_numbers(groups[g], values);
    for (std::size_t k = 0; k < names.size(); ++k) {
      const std::string number = group.path + "." + names[k];
      const auto kind =
          layout.has_formulas ? VaryingNumbers::Kind::kFollowed : VaryingNumbers::Kind::kLiteral;
      group.numbers.add(number, values[k],
                        trace::find_leaf(recording, trace::LeafKind::kHyperparameter, number),
                        kind);
    }
    if (names.empty()) group.literals = live::hyperparameters_of(groups[g], watched.type);
    watched.groups.push_back(std::move(group));
    for (const at::Tensor& parameter : groups[g].params()) {
      void* key = parameter.unsafeGetTensorImpl();
      const auto found = optimizer.state().find(key);
      if (found == optimizer.state().end()) continue;
      // a parameter that two groups hold has one state
      if (std::ranges::find(watched.states, key, &State::key) != watched.states.end()) continue;
      const std::int64_t at = snapshot.find(parameter);
      const std::string name = at < 0 ? "?" : snapshot.tensors[static_cast<std::size_t>(at)].path;
      State state{key, trace::state_path(path, name), impls_of(*found->second), trace::kNone, 0};
      state.counter_leaf =
          trace::find_leaf(recording, trace::LeafKind::kStateNumber, state.path + ".step");
      for (const trace::Advance& advance : recording.advances) {
        if (advance.path == state.path + ".step") state.advance = advance.by;
      }
      watched.states.push_back(std::move(state));
    }
  }
  return watched;
}

Verdict OptimizerGuard::check(Entry& entry) const {
  for (const Watched& watched : optimizers_) {
    const auto& groups = watched.optimizer->param_groups();
    if (groups.size() != watched.groups.size()) {
      return failed(watched.path + ".param_groups.size",
                    static_cast<std::int64_t>(watched.groups.size()),
                    static_cast<std::int64_t>(groups.size()));
    }
    for (std::size_t g = 0; g < groups.size(); ++g) {
      if (Verdict verdict = check_group(watched, watched.groups[g], groups[g], entry); !verdict)
        return verdict;
    }
    if (Verdict verdict = check_states(watched, entry); !verdict) return verdict;
  }
  return {};
}

Verdict OptimizerGuard::check_group(const Watched& watched, const Group& group,
                                    const torch::optim::OptimizerParamGroup& now, Entry& entry) {
  if (!same_tensors(now.params(), group.parameters)) {
    return failed(group.path + ".params", "the parameters it held when it was recorded", "others");
  }
  std::array<double, kMostNumbers> values{};
  live::read_numbers(now, values);
  if (Verdict verdict = group.numbers.check(values, entry); !verdict) return verdict;
  if (group.literals.empty()) return {};
  const std::vector<trace::NamedValue> found = live::hyperparameters_of(now, watched.type);
  for (std::size_t i = 0; i < group.literals.size(); ++i) {
    const trace::NamedValue& expected = group.literals[i];
    if (found[i] == expected) continue;
    return failed(group.path + "." + expected.name, trace::print_value(expected.value),
                  trace::print_value(found[i].value));
  }
  return {};
}

Verdict OptimizerGuard::check_states(const Watched& watched, Entry& entry) {
  const auto& states = watched.optimizer->state();
  if (states.size() != watched.state_size) {
    return failed(watched.path + ".state.size", static_cast<std::int64_t>(watched.state_size),
                  static_cast<std::int64_t>(states.size()));
  }
  for (const State& state : watched.states) {
    const auto found = states.find(state.key);
    if (found == states.end()) return failed(state.path, "there", "gone");
    if (!live::holds_tensors(*found->second, state.tensors)) {
      return failed(state.path, "the tensors it held when it was recorded", "others");
    }
    if (state.counter_leaf == trace::kNone) continue;
    const std::int64_t* counter = live::step_counter(*found->second);
    if (counter == nullptr) return failed(state.path, "of the class it had", "of another");
    entry.leaves[state.counter_leaf] = static_cast<double>(*counter);
  }
  return {};
}

template <typename Visit>
void OptimizerGuard::for_each_group(Visit&& visit) {
  for (Watched& watched : optimizers_) {
    const auto& groups = watched.optimizer->param_groups();
    for (std::size_t g = 0; g < std::min(groups.size(), watched.groups.size()); ++g) {
      std::array<double, kMostNumbers> values{};
      live::read_numbers(groups[g], values);
      visit(watched.groups[g].numbers, values);
    }
  }
}

void OptimizerGuard::settle() {
  for_each_group([](VaryingNumbers& numbers, auto& values) { numbers.settle(values); });
}

void OptimizerGuard::pin() {
  for_each_group([](VaryingNumbers& numbers, auto& values) { numbers.pin(values); });
}

std::int64_t* OptimizerGuard::counter_of(const Watched& watched, const State& state) const {
  auto& states = watched.optimizer->state();
  const auto found = states.find(state.key);
  return found == states.end() ? nullptr : live::step_counter(*found->second);
}

std::vector<std::int64_t> OptimizerGuard::counters() const {
  std::vector<std::int64_t> counters;
  for (const Watched& watched : optimizers_) {
    for (const State& state : watched.states) {
      if (state.advance == 0) continue;
      const std::int64_t* counter = counter_of(watched, state);
      counters.push_back(counter == nullptr ? 0 : *counter);
    }
  }
  return counters;
}

void OptimizerGuard::advance() const {
  for (const Watched& watched : optimizers_) {
    for (const State& state : watched.states) {
      if (state.advance == 0) continue;
      if (std::int64_t* counter = counter_of(watched, state)) *counter += state.advance;
    }
  }
}

}  // namespace steptape::guards
