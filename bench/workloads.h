#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace steptape::bench {

/// A step of a model over one batch, ready to be called again and again.
struct Trainee {
  std::shared_ptr<torch::nn::Module> model;
  std::shared_ptr<torch::optim::Optimizer> optimizer;  ///< null: forward alone
  at::Tensor inputs;
  at::Tensor labels;
  std::function<at::Tensor(const at::Tensor&)> forward;  ///< gives what cross entropy takes

  at::Tensor step(const at::Tensor& x, const at::Tensor& y) const;
};

/// One line of the table of workloads.
struct Workload {
  std::string name;
  std::string optimizer;  ///< "sgd", "adam", "adamw", or "none"
  std::function<Trainee()> make;
};

/// Small and medium models, in the order of the table; each model with each optimizer.
std::vector<Workload> workloads();

/// What is asked of models in production, forward alone.
std::vector<Workload> served_workloads();

}  // namespace steptape::bench
