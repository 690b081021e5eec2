#include "session/deferred.h"

#include <utility>

namespace steptape::session {
namespace {

thread_local Deferred* current_deferred = nullptr;

}  // namespace

void Deferred::observe(const at::Tensor& tensor, Look look) {
  // a shallow copy made by no op: nothing is recorded, and no graph is kept
  tensors.push_back(tensor.defined() ? tensor.tensor_data() : at::Tensor());
  looks.push_back(std::move(look));
}

void Deferred::run(const std::function<void(torch::optim::Optimizer&)>& step) const {
  for (torch::optim::Optimizer* optimizer : updates) step(*optimizer);
  for (std::size_t i = 0; i < looks.size() && i < tensors.size(); ++i) looks[i](tensors[i]);
}

Deferred* Deferred::current() noexcept { return current_deferred; }

Deferred::Scope::Scope(Deferred& deferred)
    : previous_(std::exchange(current_deferred, &deferred)) {}

Deferred::Scope::~Scope() { current_deferred = previous_; }

}  // namespace steptape::session
