#include "live/optimizer_layout.h"

#include <c10/util/StringUtil.h>
#include <c10/util/Type.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <type_traits>
#include <typeinfo>

namespace steptape::live {
namespace {

template <typename Visit>
void visit_items(const torch::optim::SGDParamState& s, Visit&& visit) {
  visit("momentum_buffer", s.momentum_buffer());
}

template <typename AdamLike, typename Visit>
requires requires(const AdamLike& s) { s.max_exp_avg_sq(); }
void visit_items(const AdamLike& s, Visit&& visit) {
  visit("step", s.step());
  visit("exp_avg", s.exp_avg());
  visit("exp_avg_sq", s.exp_avg_sq());
  visit("max_exp_avg_sq", s.max_exp_avg_sq());
}

template <typename Visit>
void visit_items(const torch::optim::RMSpropParamState& s, Visit&& visit) {
  visit("step", s.step());
  visit("square_avg", s.square_avg());
  visit("momentum_buffer", s.momentum_buffer());
  visit("grad_avg", s.grad_avg());
}

template <typename Visit>
void visit_items(const torch::optim::AdagradParamState& s, Visit&& visit) {
  visit("sum", s.sum());
  visit("step", s.step());
}

template <typename Visit>
void visit_items(const torch::optim::LBFGSParamState& s, Visit&& visit) {
  visit("func_evals", s.func_evals());
  visit("n_iter", s.n_iter());
  visit("t", s.t());
  visit("prev_loss", s.prev_loss());
  visit("d", s.d());
  visit("H_diag", s.H_diag());
  visit("prev_flat_grad", s.prev_flat_grad());
  visit("old_dirs", s.old_dirs());
  visit("old_stps", s.old_stps());
  visit("ro", s.ro());
  if (const auto& al = s.al()) visit("al", *al);
}

template <typename State, typename Visit>
bool visit_if(const torch::optim::OptimizerParamState& state, Visit&& visit) {
  if (typeid(state) != typeid(State)) return false;
  visit_items(static_cast<const State&>(state), visit);
  return true;
}

/// What a state holds in declaration order, by name: a tensor, tensors or a number.
template <typename Visit>
void visit_state(const torch::optim::OptimizerParamState& state, Visit&& visit) {
  using namespace torch::optim;
  (void)(visit_if<SGDParamState>(state, visit) || visit_if<AdamParamState>(state, visit) ||
         visit_if<AdamWParamState>(state, visit) || visit_if<RMSpropParamState>(state, visit) ||
         visit_if<AdagradParamState>(state, visit) || visit_if<LBFGSParamState>(state, visit));
}

/// `visit` for each tensor of an item, undefined ones too: nothing is allocated.
template <typename Item, typename Visit>
void visit_tensors(const Item& item, Visit&& visit) {
  if constexpr (std::is_same_v<Item, at::Tensor>) {
    visit(item);
  } else if constexpr (!std::is_arithmetic_v<Item>) {
    for (const at::Tensor& tensor : item) visit(tensor);
  }
}

template <typename State>
std::int64_t* step_if(torch::optim::OptimizerParamState& state) {
  return typeid(state) == typeid(State) ? &static_cast<State&>(state).step() : nullptr;
}

}  // namespace

std::vector<StateItem> state_items(const torch::optim::OptimizerParamState& state) {
  std::vector<StateItem> items;
  visit_state(state, [&items](const char* key, const auto& item) {
    using Item = std::remove_cvref_t<decltype(item)>;
    if constexpr (std::is_arithmetic_v<Item>) {
      items.push_back({key, item});
    } else if constexpr (std::is_same_v<Item, at::Tensor>) {
      if (item.defined()) items.push_back({key, item});
    } else {
      for (std::size_t i = 0; const at::Tensor& tensor : item) {
        if (tensor.defined()) items.push_back({c10::str(key, "[", i, "]"), tensor});
        ++i;
      }
    }
  });
  return items;
}

std::optional<std::vector<const at::Tensor*>> tensor_fields(
    const torch::optim::OptimizerParamState& state) {
  if (typeid(state) == typeid(torch::optim::LBFGSParamState)) return std::nullopt;
  std::vector<const at::Tensor*> fields;
  visit_state(state, [&fields](const char*, const auto& item) {
    visit_tensors(item, [&fields](const at::Tensor& tensor) { fields.push_back(&tensor); });
  });
  return fields;
}

bool holds_tensors(const torch::optim::OptimizerParamState& state,
                   std::span<const c10::TensorImpl* const> tensors) {
  std::size_t next = 0;
  bool is_same = true;
  const auto compare = [&](const at::Tensor& tensor) {
    if (!tensor.defined()) return;
    is_same = is_same && next < tensors.size() && tensors[next] == tensor.unsafeGetTensorImpl();
    ++next;
  };
  visit_state(state, [&](const char*, const auto& item) { visit_tensors(item, compare); });
  return is_same && next == tensors.size();
}

std::int64_t* step_counter(torch::optim::OptimizerParamState& state) {
  using namespace torch::optim;
  if (std::int64_t* step = step_if<AdamParamState>(state)) return step;
  if (std::int64_t* step = step_if<AdamWParamState>(state)) return step;
  if (std::int64_t* step = step_if<RMSpropParamState>(state)) return step;
  return step_if<AdagradParamState>(state);
}

std::string type_name(const torch::optim::Optimizer& optimizer) {
  return c10::demangle(typeid(optimizer).name());
}

}  // namespace steptape::live
