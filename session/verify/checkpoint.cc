#include "session/verify/checkpoint.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/clone.h>

#include <map>
#include <string_view>

#include "live/generator_state.h"
#include "live/optimizer_layout.h"
#include "live/tensors.h"
#include "trace/numbers.h"

namespace steptape::session {
namespace {

bool can_be_kept(const at::Tensor& tensor) {
  return tensor.defined() && !live::unplannable_kind(tensor) && !live::foreign_device(tensor);
}

/// Calls `visit(path, number)` for each number in the state of optimizers, and writes back what it
/// became.
template <typename Visit>
void for_each_number(const live::Objects& objects, const live::Snapshot& snapshot, Visit&& visit) {
  for (const auto& [path, object] : objects.foreign()) {
    const auto* optimizer = dynamic_cast<const live::ForeignOptimizer*>(object.get());
    if (optimizer == nullptr) continue;
    for (const live::ForeignOptimizer::State& state : optimizer->state()) {
      const auto* number = std::get_if<trace::Value>(&state.value);
      const bool is_number = number != nullptr && trace::is_number(*number);
      const std::string parameter = is_number ? snapshot.path_of(state.parameter) : "";
      if (parameter.empty()) continue;
      trace::Value now = *number;
      visit(trace::state_path(path, parameter) + "." + state.key, now);
      if (now != *number) optimizer->set_number(state.parameter, state.key, now);
    }
  }
  for (const auto& [path, optimizer] : objects.optimizers()) {
    for (const auto& [key, state] : optimizer->state()) {
      const auto parameter = snapshot.positions.find(static_cast<const c10::TensorImpl*>(key));
      if (parameter == snapshot.positions.end()) continue;
      if (std::int64_t* counter = state == nullptr ? nullptr : live::step_counter(*state)) {
        trace::Value now{*counter};
        visit(trace::state_path(path, snapshot.tensors[parameter->second].path), now);
        *counter = std::get<std::int64_t>(now.data);
      }
    }
  }
}

}  // namespace

Checkpoint::Checkpoint(const live::Objects& objects) {
  const at::AutoDispatchBelowADInplaceOrView below;
  const live::Snapshot snapshot = objects.snapshot();
  for (const live::TensorAt& at : snapshot.tensors) {
    if (can_be_kept(at.tensor)) tensors_.emplace_back(at.path, at.tensor.clone());
  }
  for_each_number(objects, snapshot, [this](std::string path, const trace::Value& number) {
    numbers_.emplace_back(std::move(path), number);
  });
  for (const auto& [path, generator] : objects.generators()) {
    generators_.emplace_back(path, live::state_of(generator));
  }
}

std::vector<std::string> Checkpoint::put_back(const live::Objects& objects) const {
  const at::AutoDispatchBelowADInplaceOrView below;
  const live::Snapshot snapshot = objects.snapshot();
  std::map<std::string_view, const at::Tensor*> now;
  for (const live::TensorAt& at : snapshot.tensors) now.emplace(at.path, &at.tensor);
  std::vector<std::string> left;
  for (const auto& [path, saved] : tensors_) {
    const auto found = now.find(path);
    const bool fits = found != now.end() && can_be_kept(*found->second) &&
                      found->second->sizes() == saved.sizes() &&
                      found->second->scalar_type() == saved.scalar_type();
    if (!fits) {
      left.push_back(path);
      continue;
    }
    const at::Tensor& tensor = *found->second;
    tensor.copy_(saved);
    if (!tensor.is_inference()) tensor.unsafeGetTensorImpl()->bump_version();
  }
  const std::map<std::string_view, trace::Value> numbers(numbers_.begin(), numbers_.end());
  for_each_number(objects, snapshot, [&](const std::string& path, trace::Value& number) {
    if (const auto found = numbers.find(path); found != numbers.end()) number = found->second;
  });
  for (const auto& [path, generator] : objects.generators()) {
    for (const auto& [saved, state] : generators_) {
      if (saved == path) live::set_state(generator, state);
    }
  }
  return left;
}

}  // namespace steptape::session
