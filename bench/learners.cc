#include "learners.h"

#include <ATen/ATen.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/pooling.h>
#include <torch/optim/adam.h>
#include <torch/optim/sgd.h>

#include <utility>

#include "../examples/digits/model.h"

namespace steptape::bench {
namespace {

namespace nn = torch::nn;

template <typename Holder>
Learner learner_of(Holder model, at::Tensor inputs) {
  auto optimizer = std::make_shared<torch::optim::SGD>(
      model->parameters(), torch::optim::SGDOptions(0.01).momentum(0.9).weight_decay(1e-4));
  const auto count = inputs.size(0);
  return {model.ptr(), [model](const at::Tensor& x) mutable { return model->forward(x); },
          std::move(optimizer), std::move(inputs), at::arange(count).remainder(10)};
}

Learner digits_learner() {
  at::manual_seed(1);
  return learner_of(digits::Net(), at::rand({32, digits::kSide * digits::kSide}));
}

Learner mlp(std::int64_t layers, std::int64_t width) {
  at::manual_seed(1);
  nn::Sequential model;
  for (std::int64_t i = 0; i < layers; ++i) {
    model->push_back(nn::Linear(width, width));
    model->push_back(nn::ReLU());
  }
  model->push_back(nn::Linear(width, 10));
  return learner_of(std::move(model), at::rand({32, width}));
}

Learner small_mlp() { return mlp(4, 32); }
Learner deep_mlp() { return mlp(50, 16); }

Learner with_adam(Learner learner) {
  learner.optimizer = std::make_shared<torch::optim::Adam>(learner.model->parameters(), 1e-3);
  return learner;
}

Learner small_adam() { return with_adam(small_mlp()); }
Learner deep_adam() { return with_adam(deep_mlp()); }

Learner conv_net() {
  at::manual_seed(1);
  nn::Sequential model(nn::Conv2d(nn::Conv2dOptions(1, 8, 3).padding(1)), nn::BatchNorm2d(8),
                       nn::ReLU(), nn::MaxPool2d(2), nn::Flatten(), nn::Linear(8 * 16, 10));
  return learner_of(std::move(model), at::rand({32, 1, 8, 8}));
}

}  // namespace

at::Tensor Learner::step(const at::Tensor& x, const at::Tensor& y) const {
  optimizer->zero_grad();
  auto loss = at::cross_entropy_loss(forward(x), y);
  loss.backward();
  optimizer->step();
  return loss;
}

const std::vector<LearnerKind>& learner_kinds() {
  static const std::vector<LearnerKind> kinds = {
      {"digits", digits_learner},   {"mlp_4x32", small_mlp},       {"mlp_50x16", deep_mlp},
      {"conv_batchnorm", conv_net}, {"mlp_4x32_adam", small_adam}, {"mlp_50x16_adam", deep_adam}};
  return kinds;
}

}  // namespace steptape::bench
