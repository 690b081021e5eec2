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
  void add(const char* key, std::size_t position, const at::Tensor& tensor) {
    if (tensor.defined()) items_.push_back({c10::str(key, "[", position, "]"), tensor});
  }
  std::vector<StateItem> take() { return std::move(items_); }

 private:
  std::vector<StateItem> items_;
};

/// Compares the tensors of a state with those it held before; allocates nothing.
class SameTensors {
 public:
  explicit SameTensors(std::span<const c10::TensorImpl* const> before) : before_(before) {}
  void add(const char*, const at::Tensor& tensor) {
    if (!tensor.defined()) return;
    same_ = same_ && next_ < before_.size() && before_[next_] == tensor.unsafeGetTensorImpl();
    ++next_;
  }
  void add(const char*, std::int64_t) {}
  void add(const char*, double) {}
  void add(const char* key, std::size_t, const at::Tensor& tensor) { add(key, tensor); }
  bool holds() const { return same_ && next_ == before_.size(); }

 private:
  std::span<const c10::TensorImpl* const> before_;
  std::size_t next_ = 0;
  bool same_ = true;
};

class Fields {
 public:
  void add(const char*, const at::Tensor& tensor) { fields_.push_back(&tensor); }
  void add(const char*, std::int64_t) {}
  void add(const char*, double) {}
  void add(const char*, std::size_t, const at::Tensor& tensor) { fields_.push_back(&tensor); }
  std::vector<const at::Tensor*> take() { return std::move(fields_); }

 private:
  std::vector<const at::Tensor*> fields_;
};

template <typename Items, typename Tensors>
void add_all(Items& items, const char* key, const Tensors& tensors) {
  std::size_t position = 0;
  for (const at::Tensor& tensor : tensors) items.add(key, position++, tensor);
}

template <typename Items>
void fill(Items& items, const torch::optim::SGDParamState& s) {
  items.add("momentum_buffer", s.momentum_buffer());
}

template <typename Items, typename AdamLike>
void fill_adam(Items& items, const AdamLike& s) {
  items.add("step", s.step());
  items.add("exp_avg", s.exp_avg());
  items.add("exp_avg_sq", s.exp_avg_sq());
  items.add("max_exp_avg_sq", s.max_exp_avg_sq());
}

template <typename Items>
void fill(Items& items, const torch::optim::AdamParamState& s) {
  fill_adam(items, s);
}

template <typename Items>
void fill(Items& items, const torch::optim::AdamWParamState& s) {
  fill_adam(items, s);
}

template <typename Items>
void fill(Items& items, const torch::optim::RMSpropParamState& s) {
  items.add("step", s.step());
  items.add("square_avg", s.square_avg());
  items.add("momentum_buffer", s.momentum_buffer());
  items.add("grad_avg", s.grad_avg());
}

template <typename Items>
void fill(Items& items, const torch::optim::AdagradParamState& s) {
  items.add("sum", s.sum());
  items.add("step", s.step());
}

template <typename Items>
void fill(Items& items, const torch::optim::LBFGSParamState& s) {
  items.add("func_evals", s.func_evals());
  items.add("n_iter", s.n_iter());
  items.add("t", s.t());
  items.add("prev_loss", s.prev_loss());
  items.add("d", s.d());
  items.add("H_diag", s.H_diag());
  items.add("prev_flat_grad", s.prev_flat_grad());
  add_all(items, "old_dirs", s.old_dirs());
  add_all(items, "old_stps", s.old_stps());
  add_all(items, "ro", s.ro());
  if (const auto& al = s.al()) add_all(items, "al", *al);
}

template <typename State, typename Items>
bool fill_if(Items& items, const torch::optim::OptimizerParamState& state) {
  if (typeid(state) != typeid(State)) return false;
  fill(items, static_cast<const State&>(state));
  return true;
}

template <typename Items>
void visit(Items& items, const torch::optim::OptimizerParamState& state) {
  using namespace torch::optim;
  (void)(fill_if<SGDParamState>(items, state) || fill_if<AdamParamState>(items, state) ||
         fill_if<AdamWParamState>(items, state) || fill_if<RMSpropParamState>(items, state) ||
         fill_if<AdagradParamState>(items, state) || fill_if<LBFGSParamState>(items, state));
}

template <typename State>
std::int64_t* step_if(torch::optim::OptimizerParamState& state) {
  return typeid(state) == typeid(State) ? &static_cast<State&>(state).step() : nullptr;
}

}  // namespace

std::vector<StateItem> state_items(const torch::optim::OptimizerParamState& state) {
  Items items;
  visit(items, state);
  return items.take();
}

std::optional<std::vector<const at::Tensor*>> tensor_fields(
    const torch::optim::OptimizerParamState& state) {
  if (typeid(state) == typeid(torch::optim::LBFGSParamState)) return std::nullopt;
  Fields fields;
  visit(fields, state);
  return fields.take();
}

bool holds_tensors(const torch::optim::OptimizerParamState& state,
                   std::span<const c10::TensorImpl* const> tensors) {
  SameTensors same(tensors);
  visit(same, state);
  return same.holds();
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
