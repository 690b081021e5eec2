#include "session/observations.h"

#include <utility>

namespace steptape::session {
namespace {

thread_local Observations* current_observations = nullptr;

}  // namespace

void Observations::add(const at::Tensor& tensor, Look look) {
  // a shallow copy made by no op: nothing is recorded, and no graph is kept
  tensors_.push_back(tensor.defined() ? tensor.tensor_data() : at::Tensor());
  looks_.push_back(std::move(look));
}

void Observations::show(const std::vector<Look>& looks, const std::vector<at::Tensor>& tensors) {
  for (std::size_t i = 0; i < looks.size() && i < tensors.size(); ++i) looks[i](tensors[i]);
}

Observations* Observations::current() noexcept { return current_observations; }

Observations::Scope::Scope(Observations& observations)
    : previous_(std::exchange(current_observations, &observations)) {}

Observations::Scope::~Scope() { current_observations = previous_; }

}  // namespace steptape::session
