#include <torch/cuda.h>

#include "tests/session/cuda/device_training.h"

/// Numerics::kFused on a device: LibTorch's fused kernels take rates as operands and step counts
/// from memory of the device, which the plan writes.
namespace steptape::tests {
namespace {

namespace nn = torch::nn;

using DeviceFusedTest = DeviceTest;

struct Fused {
  Stats stats;
  std::string text;
  std::int64_t steps = 0;  ///< of the first parameter's counter
};

template <typename Optimizer, typename State, typename OptimizerOptions>
Fused train(const OptimizerOptions& optimizer_options, bool starts_late = false) {
  torch::manual_seed(1);
  nn::Sequential model(nn::Linear(8, 16), nn::Tanh(), nn::Linear(16, 4));
  model->to(at::kCUDA);
  Optimizer optimizer(model->parameters(), optimizer_options);
  Options options;
  options.numerics = Numerics::kFused;
  options.verify.rate = 0.2;
  options.audit_seed = 5;
  Session session(options);
  session.track("model", model).track("optimizer", optimizer);
  auto step = session.wrap("train", [&](at::Tensor x) {
    optimizer.zero_grad();
    at::Tensor loss = (model->forward(x) - 1).square().mean();
    loss.backward();
    optimizer.step();
    return loss;
  });
  double rate = optimizer_options.lr();
  const at::Tensor x = on_device(torch::zeros({6, 8}));
  at::Tensor loss;
  for (int call = 0; call < 100; ++call) {
    if (starts_late && call == 1) {
      auto& state =
          static_cast<State&>(*optimizer.state().at(model->parameters()[0].unsafeGetTensorImpl()));
      state.step(state.step() + 40);
    }
    optimizer.param_groups()[0].options().set_lr(rate *= 0.99);
    x.copy_(torch::randn({6, 8}));
    loss = step(x);
  }
  EXPECT_TRUE(loss.isfinite().template item<bool>());
  auto& state =
      static_cast<State&>(*optimizer.state().at(model->parameters()[0].unsafeGetTensorImpl()));
  return {step.stats(), step.explain(), state.step()};
}

void expect_one_graph(const Fused& run) {
  EXPECT_TRUE(run.stats.refusals.empty()) << run.text;
  EXPECT_GE(run.stats.replayed, 60U) << run.text;
  EXPECT_GE(run.stats.audits, 10U) << run.text;
  ASSERT_EQ(run.stats.variants.size(), 1U) << run.text;
  const PlanStats& plan = run.stats.variants[0];
  EXPECT_GE(plan.largest_ulps, 0) << run.text;
  EXPECT_LE(plan.largest_ulps, 16) << run.text;
  EXPECT_EQ(plan.device.graphs, 1U) << run.text;
  // a schedule costs no capture; that the input lies still is found out behind the first
  EXPECT_LE(plan.device.captures, 2U) << run.text;
}

TEST_F(DeviceFusedTest, UpdatesFollowASchedule) {
  using namespace torch::optim;
  const Fused adam = train<Adam, AdamParamState>(AdamOptions(1e-3).weight_decay(0.01));
  expect_one_graph(adam);
  EXPECT_EQ(adam.steps, 100);
  // the rate, and the count that all parameters share
  EXPECT_LE(adam.stats.variants.at(0).device.updated, 4U) << adam.text;
  expect_one_graph(train<Adam, AdamParamState>(AdamOptions(1e-3).amsgrad(true)));
  expect_one_graph(train<AdamW, AdamWParamState>(AdamWOptions(1e-3).weight_decay(0.05)));
}

TEST_F(DeviceFusedTest, ParametersUpdatedMoreOftenHaveACountOfTheirOwn) {
  using namespace torch::optim;
  const Fused adam = train<Adam, AdamParamState>(AdamOptions(1e-3), /*starts_late=*/true);
  expect_one_graph(adam);
  EXPECT_EQ(adam.steps, 140);
}

}  // namespace
}  // namespace steptape::tests
