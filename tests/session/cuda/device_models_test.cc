#include "tests/session/cuda/device_training.h"

namespace steptape::tests {
namespace {

namespace nn = torch::nn;
namespace F = torch::nn::functional;

std::vector<at::Tensor> digits(int call) {
  torch::manual_seed(100 + static_cast<std::uint64_t>(call));
  return {on_device(torch::randn({8, 12})), on_device(torch::randint(5, {8}))};
}

template <typename Optimizer, typename OptimizerOptions>
DeviceTraining mlp(const OptimizerOptions& options) {
  nn::Sequential model(nn::Linear(12, 16), nn::ReLU(), nn::Linear(16, 16), nn::Tanh(),
                       nn::Linear(16, 5));
  model->to(at::kCUDA);
  auto optimizer = std::make_shared<Optimizer>(model->parameters(), options);
  return {model.ptr(), optimizer, digits,
          [model, optimizer](std::vector<at::Tensor> inputs) mutable {
            optimizer->zero_grad();
            at::Tensor loss = F::cross_entropy(model->forward(inputs[0]), inputs[1]);
            loss.backward();
            optimizer->step();
            return loss;
          }};
}

void set_lr(torch::optim::Optimizer& optimizer, double lr) {
  for (auto& group : optimizer.param_groups()) group.options().set_lr(lr);
}

class DeviceModelsTest : public DeviceTest {};

TEST_F(DeviceModelsTest, AdamWithAScheduleIsOneGraph) {
  const auto make = [] {
    DeviceTraining training =
        mlp<torch::optim::Adam>(torch::optim::AdamOptions(1e-2).weight_decay(0.01));
    training.between = [optimizer = training.optimizer](int call) {
      set_lr(*optimizer, 1e-2 * (1 + call) / (5 + call));
    };
    return training;
  };
  const Trained run = expect_same(make, 60, 50);
  EXPECT_EQ(device_of(run).graphs, 1U) << run.text;
  EXPECT_EQ(device_of(run).captures, 1U) << run.text;
  EXPECT_TRUE(device_of(run).between.empty()) << run.text;
  EXPECT_GT(device_of(run).updated, 0U);
}

TEST_F(DeviceModelsTest, OptimizersKeepTheirNumbers) {
  using namespace torch::optim;
  expect_same([] { return mlp<SGD>(SGDOptions(0.1).momentum(0.9).nesterov(true)); }, 30, 20);
  expect_same([] { return mlp<AdamW>(AdamWOptions(1e-2).amsgrad(true)); }, 30, 20);
  expect_same([] { return mlp<RMSprop>(RMSpropOptions(1e-2).centered(true)); }, 30, 20);
  expect_same([] { return mlp<Adagrad>(AdagradOptions(1e-2).lr_decay(0.1)); }, 30, 20);
}

struct ConvImpl : nn::Module {
  nn::Conv2d a{register_module("a", nn::Conv2d(nn::Conv2dOptions(1, 4, 3).padding(1)))};
  nn::BatchNorm2d norm{register_module("norm", nn::BatchNorm2d(4))};
  nn::Conv2d b{register_module("b", nn::Conv2d(nn::Conv2dOptions(4, 8, 3).stride(2)))};
  nn::Linear head{register_module("head", nn::Linear(8, 5))};
  at::Tensor forward(const at::Tensor& x) {
    at::Tensor y = F::max_pool2d(torch::relu(norm(a(x))), F::MaxPool2dFuncOptions(2));
    y = torch::dropout(torch::relu(b(y)), 0.2, is_training());
    return head(y.mean({2, 3}));
  }
};
TORCH_MODULE(Conv);

TEST_F(DeviceModelsTest, ConvolutionsBatchNormAndDropout) {
  const auto make = [] {
    Conv model;
    model->to(at::kCUDA);
    auto optimizer = std::make_shared<torch::optim::SGD>(
        model->parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));
    return DeviceTraining{model.ptr(), optimizer,
                          [](int call) {
                            torch::manual_seed(100 + static_cast<std::uint64_t>(call));
                            // the device's generator goes on by itself
                            return std::vector<at::Tensor>{on_device(torch::randn({4, 1, 8, 8})),
                                                           on_device(torch::randint(5, {4}))};
                          },
                          [model, optimizer](std::vector<at::Tensor> inputs) mutable {
                            optimizer->zero_grad();
                            at::Tensor loss = F::cross_entropy(model(inputs[0]), inputs[1]);
                            loss.backward();
                            optimizer->step();
                            return loss;
                          }};
  };
  expect_same(make, 30, 20);
}

/// By tensors alone: LibTorch's clip_grad_norm_ brings the norm to the host.
void clip(const std::vector<at::Tensor>& parameters) {
  const torch::NoGradGuard no_grad;
  at::Tensor squares = torch::zeros({}, at::kCUDA);
  for (const at::Tensor& parameter : parameters) squares += parameter.grad().square().sum();
  const at::Tensor scale = (1.0 / (squares.sqrt() + 1e-6)).clamp_max(1.0);
  for (const at::Tensor& parameter : parameters) parameter.grad().mul_(scale);
}

struct BlockImpl : nn::Module {
  nn::Embedding embedding{register_module("embedding", nn::Embedding(32, 16))};
  nn::LayerNorm norm{register_module("norm", nn::LayerNorm(nn::LayerNormOptions({16})))};
  nn::Linear qkv{register_module("qkv", nn::Linear(16, 48))};
  nn::Linear mlp{register_module("mlp", nn::Linear(16, 16))};
  double dropout = 0;
  at::Tensor forward(const at::Tensor& tokens) {
    at::Tensor x = embedding(tokens);
    const auto parts =
        qkv(norm(x)).view({x.size(0), x.size(1), 3, 2, 8}).permute({2, 0, 3, 1, 4}).unbind(0);
    at::Tensor y =
        at::scaled_dot_product_attention(parts[0], parts[1], parts[2], {}, dropout, true);
    x = x + y.transpose(1, 2).reshape(x.sizes());
    x = x + torch::gelu(mlp(x));
    return torch::matmul(x, embedding->weight.t());  // tied weights
  }
};
TORCH_MODULE(Block);

DeviceTraining gpt(double dropout) {
  Block model;
  model->dropout = dropout;
  model->to(at::kCUDA);
  auto optimizer =
      std::make_shared<torch::optim::AdamW>(model->parameters(), torch::optim::AdamWOptions(1e-2));
  DeviceTraining training{model.ptr(), optimizer,
                          [](int call) {
                            torch::manual_seed(100 + static_cast<std::uint64_t>(call));
                            return std::vector<at::Tensor>{on_device(torch::randint(32, {2, 6})),
                                                           on_device(torch::randint(32, {2, 6}))};
                          },
                          [model, optimizer](std::vector<at::Tensor> inputs) mutable {
                            optimizer->zero_grad();
                            at::Tensor loss = F::cross_entropy(model(inputs[0]).flatten(0, 1),
                                                               inputs[1].flatten());
                            loss.backward();
                            clip(model->parameters());
                            optimizer->step();
                            return loss;
                          }};
  training.between = [optimizer](int call) { set_lr(*optimizer, 1e-2 / (1 + 0.1 * call)); };
  return training;
}

TEST_F(DeviceModelsTest, AttentionWithClippingAndASchedule) {
  expect_same([] { return gpt(0); }, 30, 20);
}

TEST_F(DeviceModelsTest, AttentionWithDropoutDrawsAsEagerDoes) {
  expect_same([] { return gpt(0.2); }, 30, 20);
}

TEST_F(DeviceModelsTest, EvaluationIsAStepToo) {
  const auto make = [] {
    DeviceTraining training = mlp<torch::optim::SGD>(torch::optim::SGDOptions(0.1));
    auto model = training.model;
    model->eval();
    training.step = [model](std::vector<at::Tensor> inputs) {
      const torch::NoGradGuard no_grad;
      return model->as<nn::Sequential>()->forward(inputs[0]).softmax(1);
    };
    return training;
  };
  const Trained run = expect_same(make, 12, 8);
  EXPECT_EQ(device_of(run).graphs, 1U) << run.text;
}

TEST_F(DeviceModelsTest, AThousandReplays) {
  expect_same([] { return mlp<torch::optim::Adam>(torch::optim::AdamOptions(1e-3)); }, 1010, 1000);
}

}  // namespace
}  // namespace steptape::tests
