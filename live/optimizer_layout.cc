#include "live/optimizer_layout.h"

#include <c10/util/StringUtil.h>
#include <c10/util/Type.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <typeinfo>

namespace steptape::live {
namespace {

class Items {
 public:
  void add(const char* key, const at::Tensor& tensor) {
    if (tensor.defined()) items_.push_back({key, tensor});
  }
  void add(const char* key, std::int64_t number) { items_.push_back({key, number}); }
  void add(const char* key, double number) { items_.push_back({key, number}); }
  template <typename Tensors>
  void add_all(const char* key, const Tensors& tensors) {
    std::size_t position = 0;
    for (const at::Tensor& tensor : tensors) {
      const std::size_t k = position++;
      if (tensor.defined()) items_.push_back({c10::str(key, "[", k, "]"), tensor});
    }
  }
  std::vector<StateItem> take() { return std::move(items_); }

 private:
  std::vector<StateItem> items_;
};

void fill(Items& items, const torch::optim::SGDParamState& s) {
  items.add("momentum_buffer", s.momentum_buffer());
}

template <typename AdamLike>
void fill_adam(Items& items, const AdamLike& s) {
  items.add("step", s.step());
  items.add("exp_avg", s.exp_avg());
  items.add("exp_avg_sq", s.exp_avg_sq());
  items.add("max_exp_avg_sq", s.max_exp_avg_sq());
}

void fill(Items& items, const torch::optim::RMSpropParamState& s) {
  items.add("step", s.step());
  items.add("square_avg", s.square_avg());
  items.add("momentum_buffer", s.momentum_buffer());
  items.add("grad_avg", s.grad_avg());
}

void fill(Items& items, const torch::optim::AdagradParamState& s) {
  items.add("sum", s.sum());
  items.add("step", s.step());
}

void fill(Items& items, const torch::optim::LBFGSParamState& s) {
  items.add("func_evals", s.func_evals());
  items.add("n_iter", s.n_iter());
  items.add("t", s.t());
  items.add("prev_loss", s.prev_loss());
  items.add("d", s.d());
  items.add("H_diag", s.H_diag());
  items.add("prev_flat_grad", s.prev_flat_grad());
  items.add_all("old_dirs", s.old_dirs());
  items.add_all("old_stps", s.old_stps());
  items.add_all("ro", s.ro());
  if (const auto& al = s.al()) items.add_all("al", *al);
}

}  // namespace

std::vector<StateItem> state_items(const torch::optim::OptimizerParamState& state) {
  Items items;
  if (auto* sgd = dynamic_cast<const torch::optim::SGDParamState*>(&state)) {
    fill(items, *sgd);
  } else if (auto* adam = dynamic_cast<const torch::optim::AdamParamState*>(&state)) {
    fill_adam(items, *adam);
  } else if (auto* adamw = dynamic_cast<const torch::optim::AdamWParamState*>(&state)) {
    fill_adam(items, *adamw);
  } else if (auto* rmsprop = dynamic_cast<const torch::optim::RMSpropParamState*>(&state)) {
    fill(items, *rmsprop);
  } else if (auto* adagrad = dynamic_cast<const torch::optim::AdagradParamState*>(&state)) {
    fill(items, *adagrad);
  } else if (auto* lbfgs = dynamic_cast<const torch::optim::LBFGSParamState*>(&state)) {
    fill(items, *lbfgs);
  }
  return items.take();
}

std::string type_name(const torch::optim::Optimizer& optimizer) {
  return c10::demangle(typeid(optimizer).name());
}

}  // namespace steptape::live
