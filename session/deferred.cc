#include "session/deferred.h"

#include <algorithm>
#include <iterator>
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

void Deferred::take_over(Deferred&& inner) {
  std::ranges::move(inner.updates, std::back_inserter(updates));
  std::ranges::move(inner.looks, std::back_inserter(looks));
  std::ranges::move(inner.tensors, std::back_inserter(tensors));
}

void Deferred::run(const std::function<void(torch::optim::Optimizer&)>& step) const {
  for (torch::optim::Optimizer* optimizer : updates) step(*optimizer);
  for (std::size_t i = 0; i < looks.size() && i < tensors.size(); ++i) looks[i](tensors[i]);
}

Deferred* Deferred::current() noexcept { return current_deferred; }

live::Scoped<Deferred*> Deferred::make_current(Deferred& deferred) {
  return {current_deferred, &deferred};
}

}  // namespace steptape::session
