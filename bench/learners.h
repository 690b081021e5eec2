#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace steptape::bench {

/// A model, its optimizer and one batch: what a training step needs.
struct Learner {
  std::shared_ptr<torch::nn::Module> model;
  std::function<at::Tensor(const at::Tensor&)> forward;
  std::shared_ptr<torch::optim::Optimizer> optimizer;
  at::Tensor inputs;
  at::Tensor labels;

  at::Tensor step(const at::Tensor& x, const at::Tensor& y) const;
};

struct LearnerKind {
  std::string name;
  Learner (*make)();
};

/// The demo's classifier, an MLP that is all overhead, a deep one, and a small convolution net,
/// with SGD with momentum; the two MLPs with Adam.
const std::vector<LearnerKind>& learner_kinds();

}  // namespace steptape::bench
