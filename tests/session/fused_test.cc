#include <gtest/gtest.h>

#include <array>

#include "session/verify/ulps.h"
#include "tests/session/training.h"

namespace steptape::tests {
namespace {

Options fused() {
  Options options;
  options.numerics = Numerics::kFused;
  options.verify.rate = 0.2;
  options.audit_seed = 5;
  return options;
}

/// Trains with fused updates and a moving rate; every audit compares with the eager step.
template <typename Optimizer, typename OptimizerOptions>
Stats train(const OptimizerOptions& optimizer_options, const std::string& kernel) {
  Training<Optimizer, OptimizerOptions> taped({true, 0.25}, optimizer_options);
  Session session(fused());
  session.track("model", taped.model).track("optimizer", taped.optimizer);
  auto train = session.wrap("train", [&](at::Tensor x, at::Tensor y) { return taped.step(x, y); });
  double rate = optimizer_options.lr();
  at::Tensor loss;
  for (const Batch& batch : make_batches(200)) {
    taped.optimizer.param_groups()[0].options().set_lr(rate *= 0.99);
    loss = train(batch.images, batch.labels);
  }
  EXPECT_TRUE(loss.isfinite().template item<bool>());
  EXPECT_GE(train.stats().replayed, 120U) << train.explain();
  EXPECT_GE(train.stats().audits, 20U) << train.explain();
  EXPECT_TRUE(train.stats().refusals.empty()) << train.explain();
  EXPECT_EQ(train.stats().variants.size(), 1U);
  std::cout << kernel << ": " << train.stats().variants[0].largest_ulps << " ulps, "
            << train.stats().variants[0].calls << " calls\n";
  return train.stats();
}

void expect_fused(const Stats& stats) {
  EXPECT_GE(stats.variants.at(0).largest_ulps, 0);
  EXPECT_LE(stats.variants.at(0).largest_ulps, 16);
}

TEST(FusedTest, UpdatesStayWithinTheBound) {
  using namespace torch::optim;
  expect_fused(train<Adam>(AdamOptions(1e-3), "adam"));
  expect_fused(train<Adam>(AdamOptions(1e-3).weight_decay(0.01).amsgrad(true), "adam amsgrad"));
  expect_fused(train<AdamW>(AdamWOptions(1e-3).weight_decay(0.05), "adamw"));
  expect_fused(train<Adagrad>(AdagradOptions(0.01).lr_decay(0.01).weight_decay(0.01), "adagrad"));
}

TEST(FusedTest, AnOptimizerWithoutAKernelStaysExact) {
  using namespace torch::optim;
  const Stats stats = train<RMSprop>(RMSpropOptions(1e-3), "rmsprop");
  EXPECT_LT(stats.variants.at(0).largest_ulps, 0);
  // the recorded ops of its update are faster
  const Stats sgd = train<SGD>(SGDOptions(0.1).momentum(0.9), "sgd");
  EXPECT_LT(sgd.variants.at(0).largest_ulps, 0);
}

TEST(FusedTest, StepCountersAdvanceAndFewerCallsAreMade) {
  const auto run = [](Numerics numerics) {
    AdamTraining taped({}, torch::optim::AdamOptions(1e-3));
    Options options = quiet();
    options.numerics = numerics;
    Session session(options);
    session.track("model", taped.model).track("optimizer", taped.optimizer);
    auto train =
        session.wrap("train", [&](at::Tensor x, at::Tensor y) { return taped.step(x, y); });
    for (const Batch& batch : make_batches(20)) train(batch.images, batch.labels);
    auto& state = static_cast<torch::optim::AdamParamState&>(
        *taped.optimizer.state().at(taped.model->fc1->weight.unsafeGetTensorImpl()));
    EXPECT_EQ(state.step(), 20);
    return train.stats().variants.at(0).calls;
  };
  EXPECT_LT(run(Numerics::kFused) + 30, run(Numerics::kExact));
}

TEST(UlpsTest, AreMeasuredAtTheLargestOperand) {
  const auto distance = [](float before, float a, float b) {
    const std::array<float, 1> x{before}, y{a}, z{b};
    return session::distance_in_ulps(std::as_bytes(std::span(x)), std::as_bytes(std::span(y)),
                                     std::as_bytes(std::span(z)), trace::DType::kFloat32);
  };
  EXPECT_EQ(distance(0, 1, 1), 0);
  EXPECT_EQ(distance(0, 1, std::nextafter(1.f, 2.f)), 1);
  EXPECT_LT(distance(1, 1e-8f, 2e-8f), 1);
  EXPECT_GT(distance(0, 1e-8f, 2e-8f), 1e6);
  EXPECT_EQ(distance(0, NAN, NAN), 0);
  EXPECT_EQ(distance(0, NAN, 1), std::numeric_limits<double>::infinity());
}

}  // namespace
}  // namespace steptape::tests
