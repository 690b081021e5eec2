#pragma once

#include <gtest/gtest.h>
#include <steptape/steptape.h>
#include <torch/nn.h>
#include <torch/optim.h>

#include <functional>
#include <string>
#include <vector>

/// The vocabulary of the session tests: real training loops, run eagerly and through Steptape from
/// the same seed, and compared bit for bit.
namespace steptape::tests {

/// Equal shape, dtype and bytes (NaNs and signed zeros included); two undefined tensors are equal.
bool same_bits(const at::Tensor& a, const at::Tensor& b);

/// Where these trainings are done: the CPU, unless a program of tests says otherwise.
c10::Device device();
void train_on(c10::Device device);

/// Everything a user can see of a training: parameters, module buffers, gradients.
std::vector<at::Tensor> visible_state(const torch::nn::Module& model);
/// Deep copies, to be compared later.
std::vector<at::Tensor> copied(const std::vector<at::Tensor>& tensors);
::testing::AssertionResult all_same_bits(const std::vector<at::Tensor>& a,
                                         const std::vector<at::Tensor>& b);

/// 64 → 32 → 10 with the extras a test asks for.
struct NetOptions {
  bool batch_norm = false;
  double dropout = 0;
};

struct NetImpl : torch::nn::Module {
  explicit NetImpl(NetOptions options = {});
  at::Tensor forward(at::Tensor x);

  torch::nn::Linear fc1{nullptr}, fc2{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
  torch::nn::Dropout dropout{nullptr};
};
TORCH_MODULE(Net);

struct Batch {
  at::Tensor images, labels;
};

/// The same module, moved to `device()`.
template <typename Module>
Module placed(Module module) {
  module->to(device());
  return module;
}

/// `count` batches of `size` made-up digits, the same in every call with the same seed.
std::vector<Batch> make_batches(std::size_t count, std::int64_t size = 16, std::uint64_t seed = 7);

/// A model, an optimizer and the plain training step over them.
template <typename Optimizer, typename OptimizerOptions>
struct Training {
  Net model;
  Optimizer optimizer;

  Training(const NetOptions& net, const OptimizerOptions& options)
      : model((torch::manual_seed(1), placed(Net(net)))), optimizer(model->parameters(), options) {}

  at::Tensor step(const at::Tensor& images, const at::Tensor& labels) {
    optimizer.zero_grad();
    at::Tensor loss = torch::nn::functional::cross_entropy(model->forward(images), labels);
    loss.backward();
    optimizer.step();
    return loss;
  }
};

using SgdTraining = Training<torch::optim::SGD, torch::optim::SGDOptions>;
using AdamTraining = Training<torch::optim::Adam, torch::optim::AdamOptions>;

/// Audits off, so that counts in tests are exact.
Options quiet();

}  // namespace steptape::tests
