#include <gtest/gtest.h>

#include <random>
#include <stdexcept>

#include "tests/session/training.h"
#include "trace/value.h"

namespace steptape::tests {
namespace {

/// Numbers of the program's own: declared, returned, read, looked at.
class NumbersTest : public ::testing::Test {
 protected:
  NumbersTest() { torch::manual_seed(3); }
  static at::Tensor input() { return at::rand({6}); }
  Session session_{quiet()};
};

TEST_F(NumbersTest, AHostValueThatMovesIsFollowed) {
  double tau = 1;
  session_.host("tau", [&] { return tau; });
  auto step = session_.wrap("step", [&](at::Tensor x) { return x * tau + tau; });
  for (int i = 0; i < 30; ++i) {
    tau = 1.0 / (i + 2);
    const at::Tensor x = input();
    ASSERT_TRUE(same_bits(x * tau + tau, step(x))) << i;
  }
  EXPECT_GE(step.stats().replayed, 26U) << step.explain();
}

TEST_F(NumbersTest, AHostValueThatBeginsToMoveIsProbedOnceMore) {
  double tau = 0.5;
  session_.host("tau", [&] { return tau; });
  // 0.5 stands here twice by chance: which of the two is tau is told when it moves
  auto step = session_.wrap("step", [&](at::Tensor x) { return x * tau + 0.5; });
  for (int i = 0; i < 40; ++i) {
    if (i >= 10) tau = 0.5 + i;
    const at::Tensor x = input();
    ASSERT_TRUE(same_bits(x * tau + 0.5, step(x))) << i;
  }
  EXPECT_GE(step.stats().replayed, 34U) << step.explain();
}

TEST_F(NumbersTest, AHostMadeTensorFollowsAHostValue) {
  double tau = 1;
  session_.host("tau", [&] { return tau; });
  auto step = session_.wrap("step", [&](at::Tensor x) { return x * torch::tensor(tau); });
  for (int i = 0; i < 30; ++i) {
    tau = 1.0 / (i + 2);
    const at::Tensor x = input();
    ASSERT_TRUE(same_bits(x * torch::tensor(tau), step(x))) << i;
  }
  EXPECT_GE(step.stats().replayed, 26U) << step.explain();
}

TEST_F(NumbersTest, AHostRandomNumberIsDrawnOnceAStep) {
  std::mt19937 mine(1), theirs(1);
  double noise = 0;
  session_.host("noise", [&] { return noise = std::uniform_real_distribution<>()(theirs); });
  auto step = session_.wrap("step", [&](at::Tensor x) { return x + noise; });
  for (int i = 0; i < 30; ++i) {
    const at::Tensor x = input();
    ASSERT_TRUE(same_bits(x + std::uniform_real_distribution<>()(mine), step(x))) << i;
  }
  EXPECT_GE(step.stats().replayed, 26U) << step.explain();
}

TEST_F(NumbersTest, AnArgumentThatFeedsAScalarIsFollowed) {
  auto step = session_.wrap(
      "step", [](at::Tensor x, double scale, int shift) { return x * scale + shift; });
  for (int i = 0; i < 30; ++i) {
    const at::Tensor x = input();
    ASSERT_TRUE(same_bits(x * (0.5 * i) + (i + 7), step(x, 0.5 * i, i + 7))) << i;
  }
  EXPECT_GE(step.stats().replayed, 25U) << step.explain();
}

TEST_F(NumbersTest, AnArgumentThatFeedsNothingStaysAGuard) {
  auto step = session_.wrap("step", [](at::Tensor x, int i) { return i % 10 == 9 ? -x : x * 2; });
  for (int i = 0; i < 40; ++i) {
    const at::Tensor x = input();
    ASSERT_TRUE(same_bits(i % 10 == 9 ? -x : x * 2, step(x, i))) << i;
  }
}

TEST_F(NumbersTest, AFactMakesAVariant) {
  double p = 0.5;
  session_.guard("p", [&] { return p; });
  auto step = session_.wrap("step", [&](at::Tensor x) { return at::dropout(x, p, true); });
  for (int i = 0; i < 40; ++i) {
    if (i == 20) p = 0.25;
    const at::Tensor x = input();
    torch::manual_seed(i);
    const at::Tensor expected = at::dropout(x, p, true);
    torch::manual_seed(i);
    ASSERT_TRUE(same_bits(expected, step(x))) << i;
  }
  EXPECT_EQ(step.stats().variants.size(), 2U) << step.explain();
  EXPECT_GE(step.stats().replayed, 32U);
}

TEST_F(NumbersTest, AReadThatIsReturnedIsReadAgain) {
  auto step = session_.wrap("step", [](at::Tensor x) {
    const at::Tensor total = x.sum();
    return std::make_tuple(x * 2, total.item<double>(), total.item<float>() > 0);
  });
  for (int i = 0; i < 30; ++i) {
    const at::Tensor x = input();
    const auto [doubled, total, positive] = step(x);
    ASSERT_TRUE(same_bits(x * 2, doubled));
    ASSERT_EQ(total, x.sum().item<double>());
    ASSERT_TRUE(positive);
  }
  // a number that was compared on the host is not a value that was read
  EXPECT_EQ(step.stats().replayed, 0U) << step.explain();

  auto other = session_.wrap("other", [](at::Tensor x) {
    const at::Tensor total = x.sum();
    return std::make_pair(x * 2, total.item<double>());
  });
  for (int i = 0; i < 30; ++i) {
    const at::Tensor x = input();
    ASSERT_EQ(other(x).second, x.sum().item<double>());
  }
  EXPECT_GE(other.stats().replayed, 26U) << other.explain();
}

TEST_F(NumbersTest, ALossThatIsReturnedBehindTheUpdateMayBeNan) {
  SgdTraining eager({false, 0}, torch::optim::SGDOptions(0.1));
  SgdTraining training({false, 0}, torch::optim::SGDOptions(0.1));
  session_.track("model", training.model).track("optimizer", training.optimizer);
  auto step = session_.wrap(
      "train", [&](at::Tensor x, at::Tensor y) { return training.step(x, y).item<double>(); });
  const std::vector<Batch> batches = make_batches(40);
  for (int i = 0; i < 40; ++i) {
    const at::Tensor x = i == 30 ? batches[i].images * INFINITY : batches[i].images;
    const double expected = eager.step(x, batches[i].labels).item<double>();
    const double found = step(x, batches[i].labels);
    ASSERT_EQ(trace::Real{expected}, trace::Real{found}) << i << step.explain();
    ASSERT_TRUE(all_same_bits(visible_state(*eager.model), visible_state(*training.model))) << i;
  }
  EXPECT_GE(step.stats().replayed, 26U) << step.explain();
}

TEST_F(NumbersTest, AReadThatFeedsAScalarIsBound) {
  auto step = session_.wrap("step", [](at::Tensor x) { return x / x.sum().item<double>(); });
  for (int i = 0; i < 30; ++i) {
    const at::Tensor x = input();
    ASSERT_TRUE(same_bits(x / x.sum().item<double>(), step(x))) << i;
  }
  EXPECT_GE(step.stats().replayed, 26U) << step.explain();
}

TEST_F(NumbersTest, AReadThatDecidesIsCheckedAndUndone) {
  at::Tensor total = at::zeros({1}), mirror = at::zeros({1});
  session_.track("total", total);
  const auto body = [](at::Tensor& sum, const at::Tensor& x) {
    sum.add_(x.sum());
    return (sum > 20).item<bool>() ? sum.fill_(0) * 2 : x * 3;
  };
  auto step = session_.wrap("step", [&](at::Tensor x) { return body(total, x); });
  for (int i = 0; i < 100; ++i) {
    const at::Tensor x = input();
    ASSERT_TRUE(same_bits(body(mirror, x), step(x))) << i;
    ASSERT_TRUE(same_bits(mirror, total)) << i;
  }
  EXPECT_GE(step.stats().replayed, 50U) << step.explain();
}

TEST_F(NumbersTest, AShapeThatDependsOnDataIsCheckedWhenMet) {
  at::Tensor total = at::zeros({1}), mirror = at::zeros({1});
  session_.track("total", total);
  const auto body = [](at::Tensor& sum, const at::Tensor& x) {
    sum.add_(1);
    return x.masked_select(x > 0.1) * sum;
  };
  auto step = session_.wrap("step", [&](at::Tensor x) { return body(total, x); });
  for (int i = 0; i < 200; ++i) {
    const at::Tensor x = i % 20 == 0 ? input() * 0.2 : input() + 0.2;
    ASSERT_TRUE(same_bits(body(mirror, x), step(x))) << i;
    ASSERT_TRUE(same_bits(mirror, total)) << i;
  }
  EXPECT_GE(step.stats().replayed, 150U) << step.explain();
}

TEST_F(NumbersTest, ShapesThatAlwaysDifferEndInARefusal) {
  auto step = session_.wrap("step", [](at::Tensor x) { return x.masked_select(x > 0.5); });
  for (int i = 0; i < 200; ++i) {
    const at::Tensor x = at::rand({100});
    ASSERT_TRUE(same_bits(x.masked_select(x > 0.5), step(x))) << i;
  }
  EXPECT_GE(step.stats().eager, 100U) << step.explain();
  EXPECT_EQ(step.stats().refusals.back().refusal.code, RefusalCode::kDataDependentShape)
      << step.explain();
}

TEST_F(NumbersTest, ReadsForLookingNeverStopAReplay) {
  Options options = quiet();
  options.host_reads = HostReads::kObserve;
  Session session(options);
  double seen = 0;
  auto step = session.wrap("step", [&](at::Tensor x) {
    seen = x.sum().item<double>();
    return x * 2;
  });
  for (int i = 0; i < 20; ++i) {
    const at::Tensor x = input();
    ASSERT_TRUE(same_bits(x * 2, step(x)));
  }
  EXPECT_GE(step.stats().replayed, 16U) << step.explain();
}

TEST_F(NumbersTest, WhatIsObservedIsSeenInEveryStep) {
  std::vector<double> seen, expected;
  auto step = session_.wrap("step", [&](at::Tensor x) {
    const at::Tensor hidden = x * 3;
    session_.observe(hidden,
                     [&](const at::Tensor& value) { seen.push_back(value.sum().item<double>()); });
    return hidden.exp();
  });
  for (int i = 0; i < 30; ++i) {
    const at::Tensor x = input();
    expected.push_back((x * 3).sum().item<double>());
    ASSERT_TRUE(same_bits((x * 3).exp(), step(x)));
  }
  EXPECT_EQ(seen, expected);
  EXPECT_GE(step.stats().replayed, 26U) << step.explain();
}

TEST_F(NumbersTest, WhatAnObserverThrowsReachesTheCallerAfterTheStep) {
  at::Tensor total = at::zeros({1});
  session_.track("total", total);
  auto step = session_.wrap("step", [&](at::Tensor x) {
    total.add_(x.sum());
    session_.observe(total, [](const at::Tensor& value) {
      if (value.isnan().any().item<bool>()) throw std::runtime_error("NaN");
    });
  });
  for (int i = 0; i < 10; ++i) step(input());
  ASSERT_GE(step.stats().replayed, 5U) << step.explain();
  EXPECT_THROW(step(input() * NAN), std::runtime_error);
  EXPECT_TRUE(total.isnan().item<bool>());
  total.zero_();
  const std::uint64_t before = step.stats().replayed;
  step(input());
  EXPECT_EQ(step.stats().replayed, before + 1);
}

TEST_F(NumbersTest, AStepInsideAnEagerStepLivesItsOwnLife) {
  SgdTraining eager({}, torch::optim::SGDOptions(0.1)), taped({}, torch::optim::SGDOptions(0.1));
  session_.track("model", taped.model).track("optimizer", taped.optimizer);
  auto update = session_.wrap("update", [&] { taped.optimizer.step(); });
  std::vector<at::Tensor> kept;
  auto train = session_.wrap("train", [&](at::Tensor x, at::Tensor y) {
    taped.optimizer.zero_grad();
    const at::Tensor hidden = taped.model->forward(x);
    kept.push_back(hidden * 2);
    auto loss = torch::nn::functional::cross_entropy(hidden, y);
    loss.backward();
    update();
    return loss;
  });
  for (const Batch& batch : make_batches(40)) {
    ASSERT_TRUE(
        same_bits(eager.step(batch.images, batch.labels), train(batch.images, batch.labels)));
  }
  EXPECT_EQ(train.stats().replayed, 0U) << train.explain();
  EXPECT_GE(update.stats().replayed, 25U) << update.explain();
  EXPECT_TRUE(all_same_bits(visible_state(*eager.model), visible_state(*taped.model)));
}

}  // namespace
}  // namespace steptape::tests
