#include "tests/session/cuda/device_training.h"

/// Ops that do the same to several tensors are done together: an update that goes from parameter to
/// parameter takes a few kernels, however many parameters there are.
namespace steptape::tests {
namespace {

namespace nn = torch::nn;
using namespace torch::optim;

using DeviceGroupsTest = DeviceTest;

constexpr int kLayers = 6;
constexpr std::uint64_t kParameters = 2 * std::uint64_t{kLayers};

/// A rate that changes with each call.
template <typename Optimizer, typename OptimizerOptions>
DeviceTraining training(const OptimizerOptions& options) {
  nn::Sequential model;
  for (int i = 0; i < kLayers; ++i) model->push_back(nn::Linear(8, 8));
  model->to(at::kCUDA);
  auto optimizer = std::make_shared<Optimizer>(model->parameters(), options);
  DeviceTraining made{model.ptr(), optimizer, {}, {}};
  made.inputs = [](int) { return std::vector{on_device(torch::randn({4, 8}))}; };
  made.step = [model, optimizer](std::vector<at::Tensor> inputs) mutable {
    optimizer->zero_grad();
    at::Tensor loss = (model->forward(inputs[0]) - 1).square().mean();
    loss.backward();
    optimizer->step();
    return loss;
  };
  made.between = [optimizer](int) {
    auto& rate = optimizer->param_groups()[0].options();
    rate.set_lr(rate.get_lr() * 0.99);
  };
  return made;
}

/// An update of so many ops for each parameter, and as many calls for all of them.
void expect_groups(const Trained& run, std::uint64_t ops) {
  const DeviceStats& device = device_of(run);
  EXPECT_EQ(device.graphs, 1U) << run.text;
  EXPECT_GE(device.grouped, ops * kParameters) << run.text;
  EXPECT_LE(device.groups, ops + 1) << run.text;
  EXPECT_LE(device.updated, ops) << run.text;
  EXPECT_LE(device.captures, 2U) << run.text;
}

TEST_F(DeviceGroupsTest, UpdatesOfAllParametersAreDoneTogether) {
  expect_groups(expect_same([] { return training<SGD>(SGDOptions(0.05).momentum(0.9)); }, 60, 50),
                3);
  expect_groups(
      expect_same([] { return training<Adam>(AdamOptions(1e-3).weight_decay(0.1)); }, 60, 50), 8);
  expect_groups(expect_same([] { return training<Adam>(AdamOptions(1e-3).amsgrad(true)); }, 60, 50),
                8);
  expect_groups(expect_same([] { return training<AdamW>(AdamWOptions(1e-3)); }, 60, 50), 8);
  expect_groups(expect_same([] { return training<RMSprop>(RMSpropOptions(1e-3)); }, 60, 50), 5);
  expect_groups(expect_same([] { return training<Adagrad>(AdagradOptions(1e-2)); }, 60, 50), 4);
}

AdamParamState& state_of(Optimizer& optimizer, std::size_t parameter) {
  const at::Tensor& of = optimizer.param_groups()[0].params()[parameter];
  return static_cast<AdamParamState&>(*optimizer.state().at(of.unsafeGetTensorImpl()));
}

TEST_F(DeviceGroupsTest, ParametersUpdatedMoreOftenAreAGroupOfTheirOwn) {
  const Trained run = expect_same(
      [] {
        DeviceTraining made = training<Adam>(AdamOptions(1e-3));
        made.between = [optimizer = made.optimizer](int call) {
          if (call != 1) return;
          for (const std::size_t parameter : {0, 3, 4}) state_of(*optimizer, parameter).step(40);
        };
        return made;
      },
      40, 30);
  EXPECT_GT(device_of(run).grouped, 0U) << run.text;
  EXPECT_LE(device_of(run).captures, 2U) << run.text;
}

TEST_F(DeviceGroupsTest, OpsWhoseNumbersPartAreDoneByThemselvesFromThenOn) {
  const Trained run = expect_same(
      [] {
        DeviceTraining made = training<Adam>(AdamOptions(1e-3));
        made.between = [optimizer = made.optimizer](int call) {
          if (call == 20) state_of(*optimizer, 2).step(500);
        };
        return made;
      },
      40, 32);
  // all of eight ops but the two that take the step count
  EXPECT_EQ(device_of(run).grouped, 6 * kParameters) << run.text;
  EXPECT_EQ(run.stats.variants.size(), 1U) << run.text;
}

}  // namespace
}  // namespace steptape::tests
