#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/nn/functional/activation.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adam.h>
#include <torch/optim/sgd.h>

#include <cstdint>
#include <vector>

namespace steptape::tests::simulated {
namespace {

class TrainingTest : public testing::Test {
 protected:
  TrainingTest() { at::set_num_threads(1); }
  ~TrainingTest() override { at::set_num_threads(threads_); }

  /// The parameters after five steps on the device, on the CPU.
  template <class Optimizer, class Options>
  static std::vector<at::Tensor> trained(at::Device device, const Options& options) {
    at::manual_seed(3);
    torch::nn::Sequential model(torch::nn::Linear(8, 16), torch::nn::ReLU(),
                                torch::nn::Linear(16, 4));
    const at::Tensor input = at::rand({32, 8}).to(device), target = at::rand({32, 4}).to(device);
    model->to(device);
    Optimizer optimizer(model->parameters(), options);
    for (int step = 0; step < 5; ++step) {
      optimizer.zero_grad();
      at::mse_loss(model->forward(input), target).backward();
      optimizer.step();
    }
    std::vector<at::Tensor> parameters;
    for (const at::Tensor& parameter : model->parameters())
      parameters.push_back(parameter.detach().cpu());
    return parameters;
  }

 private:
  int threads_ = at::get_num_threads();
};

TEST_F(TrainingTest, SgdGivesTheCpusBits) {
  const auto options = torch::optim::SGDOptions(0.1).momentum(0.9);
  const auto host = trained<torch::optim::SGD>(at::kCPU, options);
  const auto device = trained<torch::optim::SGD>(at::kCUDA, options);
  for (std::size_t i = 0; i < host.size(); ++i) EXPECT_TRUE(device[i].equal(host[i])) << i;
}

/// Adam divides by the square root of a bias correction, a number on the host: on a CUDA device
/// that is a multiplication by the reciprocal, which rounds otherwise in the last bit.
TEST_F(TrainingTest, AdamGivesTheCpusValuesButForTheDivision) {
  const auto options = torch::optim::AdamOptions(0.01);
  const auto host = trained<torch::optim::Adam>(at::kCPU, options);
  const auto device = trained<torch::optim::Adam>(at::kCUDA, options);
  for (std::size_t i = 0; i < host.size(); ++i)
    EXPECT_TRUE(at::allclose(device[i], host[i], 1e-5, 1e-7)) << i;
}

}  // namespace
}  // namespace steptape::tests::simulated
