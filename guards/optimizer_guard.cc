#include "guards/optimizer_guard.h"

#include <algorithm>

#include "guards/mismatch.h"
#include "live/optimizer_layout.h"
#include "trace/text.h"

namespace steptape::guards {
namespace {

bool same_tensors(const std::vector<at::Tensor>& now,
                  const std::vector<const c10::TensorImpl*>& then) {
  return std::equal(
      now.begin(), now.end(), then.begin(), then.end(),
      [](const at::Tensor& a, const c10::TensorImpl* b) { return a.unsafeGetTensorImpl() == b; });
}

std::vector<at::Tensor> tensors_of(const torch::optim::OptimizerParamState& state) {
  std::vector<at::Tensor> tensors;
  for (live::StateItem& item : live::state_items(state)) {
    if (auto* tensor = std::get_if<at::Tensor>(&item.value)) tensors.push_back(std::move(*tensor));
  }
  return tensors;
}

std::vector<const c10::TensorImpl*> impls_of(const std::vector<at::Tensor>& tensors) {
  std::vector<const c10::TensorImpl*> impls;
  impls.reserve(tensors.size());
  for (const at::Tensor& tensor : tensors) impls.push_back(tensor.unsafeGetTensorImpl());
  return impls;
}

}  // namespace

OptimizerGuard::OptimizerGuard(const live::Objects& objects, const live::Snapshot& snapshot) {
  for (const auto& [path, optimizer] : objects.optimizers()) {
    const auto layout = std::find_if(snapshot.optimizers.begin(), snapshot.optimizers.end(),
                                     [&](const auto& candidate) { return candidate.path == path; });
    Watched watched{path, layout->type, optimizer, {}, {}, optimizer->state().size()};
    const auto& groups = optimizer->param_groups();
    for (std::size_t g = 0; g < groups.size(); ++g) {
      watched.groups.push_back({path + ".param_groups[" + std::to_string(g) + "]",
                                live::hyperparameters_of(groups[g], watched.type),
                                impls_of(groups[g].params())});
      for (const at::Tensor& parameter : groups[g].params()) {
        void* key = parameter.unsafeGetTensorImpl();
        const auto found = optimizer->state().find(key);
        if (found == optimizer->state().end()) continue;
        const std::int64_t at = snapshot.find(parameter);
        watched.states.push_back(
            {key,
             path + ".state[" +
                 (at < 0 ? "?" : snapshot.tensors[static_cast<std::size_t>(at)].path) + "]",
             impls_of(tensors_of(*found->second))});
      }
    }
    optimizers_.push_back(std::move(watched));
  }
}

Verdict OptimizerGuard::check() const {
  for (const Watched& watched : optimizers_) {
    const auto& groups = watched.optimizer->param_groups();
    if (groups.size() != watched.groups.size()) {
      return failed(watched.path + ".param_groups.size",
                    static_cast<std::int64_t>(watched.groups.size()),
                    static_cast<std::int64_t>(groups.size()));
    }
    for (std::size_t g = 0; g < groups.size(); ++g) {
      if (Verdict verdict = check_group(watched, watched.groups[g], groups[g]); !verdict)
        return verdict;
    }
    if (Verdict verdict = check_states(watched); !verdict) return verdict;
  }
  return {};
}

Verdict OptimizerGuard::check_group(const Watched& watched, const Group& group,
                                    const torch::optim::OptimizerParamGroup& now) {
  if (!same_tensors(now.params(), group.parameters)) {
    return failed(group.path + ".params", "the parameters it held when it was recorded", "others");
  }
  const std::vector<trace::NamedValue> found = live::hyperparameters_of(now, watched.type);
  for (std::size_t i = 0; i < group.hyperparameters.size(); ++i) {
    const trace::NamedValue& expected = group.hyperparameters[i];
    if (found[i] == expected) continue;
    return failed(group.path + "." + expected.name, trace::print_value(expected.value),
                  trace::print_value(found[i].value));
  }
  return {};
}

Verdict OptimizerGuard::check_states(const Watched& watched) {
  const auto& states = watched.optimizer->state();
  if (states.size() != watched.state_size) {
    return failed(watched.path + ".state.size", static_cast<std::int64_t>(watched.state_size),
                  static_cast<std::int64_t>(states.size()));
  }
  for (const State& state : watched.states) {
    const auto found = states.find(state.key);
    if (found == states.end()) return failed(state.path, "there", "gone");
    if (!same_tensors(tensors_of(*found->second), state.tensors)) {
      return failed(state.path, "the tensors it held when it was recorded", "others");
    }
  }
  return {};
}

}  // namespace steptape::guards
