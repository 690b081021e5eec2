#include <gtest/gtest.h>

#include <cmath>

#include "tests/session/training.h"

namespace steptape::tests {
namespace {

/// Numbers that move are proved op by op: a value that leaves the results of one call as they were
/// says nothing of the next one.
class ProofsTest : public ::testing::Test {
 protected:
  ProofsTest() { torch::manual_seed(3); }

  /// A layer that learns from `body(layer's output, number)`, eagerly and on tape.
  template <typename Body>
  void expect_same_training(Body body, const std::vector<double>& numbers) {
    torch::manual_seed(1);
    torch::nn::Linear mine(3, 3);
    torch::manual_seed(1);
    torch::nn::Linear theirs(3, 3);
    torch::optim::SGD my_update(mine->parameters(), 0.1);
    torch::optim::SGD their_update(theirs->parameters(), 0.1);
    session_.track("model", theirs).track("optimizer", their_update);
    const auto learn = [body](torch::nn::Linear& model, torch::optim::SGD& update,
                              const at::Tensor& x, double number) {
      update.zero_grad();
      const at::Tensor loss = body(model->forward(x), number).square().mean();
      loss.backward();
      update.step();
      return loss.detach();
    };
    auto step = session_.wrap(
        "step", [&](at::Tensor x, double c) { return learn(theirs, their_update, x, c); });
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      const at::Tensor x = at::randn({4, 3});
      ASSERT_TRUE(same_bits(learn(mine, my_update, x, numbers[i]), step(x, numbers[i])))
          << i << step.explain();
      ASSERT_TRUE(all_same_bits(visible_state(*mine), visible_state(*theirs)))
          << i << step.explain();
    }
    stats_ = step.stats();
    explained_ = step.explain();
  }

  static std::vector<double> first_then(double first, std::initializer_list<double> then) {
    std::vector<double> numbers(8, first);
    for (const double number : then) numbers.insert(numbers.end(), 4, number);
    return numbers;
  }

  Session session_{quiet()};
  Stats stats_;
  std::string explained_;
};

TEST_F(ProofsTest, AClipRangeThatIsMetWhileNothingIsClipped) {
  expect_same_training([](const at::Tensor& h, double c) { return h.clamp(-c, c); },
                       first_then(100, {90, 80, 70, 0.3, 0.2, 0.1}));
  EXPECT_GE(stats_.replayed, 18U) << explained_;
}

TEST_F(ProofsTest, ASlopeThatBackwardHolds) {
  expect_same_training([](const at::Tensor& h, double c) { return at::leaky_relu(h, c); },
                       first_then(0.2, {0.9, 0.3, 0.4, 0.5, 0.6, 0.7}));
  EXPECT_GE(stats_.replayed, 18U) << explained_;
}

TEST_F(ProofsTest, AnExponentOfWhichBackwardHoldsOneLess) {
  expect_same_training([](const at::Tensor& h, double c) { return (h.abs() + 1).pow(c); },
                       first_then(1.5, {2.5, 1.25, 3.5, 1.75, 2.25}));
  EXPECT_GE(stats_.replayed, 15U) << explained_;
}

TEST_F(ProofsTest, AThresholdOfASmoothLoss) {
  expect_same_training(
      [](const at::Tensor& h, double c) { return at::huber_loss(h, at::zeros_like(h), 1, c); },
      first_then(100, {90, 80, 0.3, 0.2, 0.1}));
  EXPECT_GE(stats_.replayed, 15U) << explained_;
}

TEST_F(ProofsTest, ASizeIsFollowedNowhere) {
  auto step = session_.wrap("step", [](at::Tensor x, std::int64_t n) {
    return x.slice(0, 0, n) * static_cast<double>(n);
  });
  for (int i = 0; i < 60; ++i) {
    const at::Tensor x = at::rand({16});
    const std::int64_t n = i < 12 ? 16 : 16 - i / 12;
    ASSERT_TRUE(same_bits(x.slice(0, 0, n) * static_cast<double>(n), step(x, n))) << step.explain();
  }
  EXPECT_GE(step.stats().replayed, 30U) << step.explain();
}

TEST_F(ProofsTest, AReadThatEntersAViewAndAScalar) {
  const auto body = [](const at::Tensor& x, const at::Tensor& lengths) {
    const auto n = lengths.max().item<std::int64_t>();
    return x.slice(1, 0, n).sum() / n;
  };
  auto step = session_.wrap("step", [&](at::Tensor x, at::Tensor l) { return body(x, l); });
  for (int i = 0; i < 40; ++i) {
    const at::Tensor x = at::rand({4, 3});
    const at::Tensor lengths = torch::tensor({i < 10 ? 3 : 1 + i % 3, 1});
    ASSERT_TRUE(same_bits(body(x, lengths), step(x, lengths))) << i << step.explain();
  }
}

TEST_F(ProofsTest, AReadThatMovesWhenAnAuditIsDue) {
  Options options;
  options.verify.rate = 1;
  Session session{options};
  const auto body = [](const at::Tensor& x, const at::Tensor& t) {
    const double c = (t + 0).item<double>();
    return x.clamp(-c, c) * (c < 2 ? c : 2.0);
  };
  auto step = session.wrap("step", [&](at::Tensor x, at::Tensor t) { return body(x, t); });
  for (int i = 0; i < 40; ++i) {
    const at::Tensor x = at::rand({4});
    const at::Tensor t = torch::tensor(i < 10 ? 100.0 : i < 20 ? 90.0 : i < 30 ? 0.5 : 90.0);
    ASSERT_TRUE(same_bits(body(x, t), step(x, t))) << i << step.explain();
  }
  EXPECT_GE(step.stats().audits, 20U) << step.explain();
  for (const CountedRefusal& refusal : step.stats().refusals) {
    EXPECT_NE(refusal.refusal.code, RefusalCode::kAuditDiverged) << step.explain();
  }
}

TEST_F(ProofsTest, NumbersInATensorThatTheStepMakes) {
  const auto body = [](const at::Tensor& x, double c) {
    return x * torch::tensor({c, 2.0, c * c, 5.0});
  };
  auto step = session_.wrap("step", [&](at::Tensor x, double c) { return body(x, c); });
  for (int i = 0; i < 60; ++i) {
    const at::Tensor x = at::rand({4});
    const double c = 0.5 * (i % 13);  // it reaches 2 and 5, the literals after it
    ASSERT_TRUE(same_bits(body(x, c), step(x, c))) << i << step.explain();
  }
  EXPECT_GT(step.stats().replayed, 0U) << step.explain();
}

TEST_F(ProofsTest, AReadThatEntersTwoScalars) {
  const auto body = [](const at::Tensor& x, const at::Tensor& t) {
    const double s = (t + 0).item<double>();
    return x * s + (s > 0.75 ? 1.0 : s);
  };
  auto step = session_.wrap("step", [&](at::Tensor x, at::Tensor t) { return body(x, t); });
  for (int i = 0; i < 40; ++i) {
    const at::Tensor x = at::rand({4});
    const at::Tensor t = torch::tensor(i < 10 ? 1.0 : i < 20 ? 0.5 : 1.0);
    ASSERT_TRUE(same_bits(body(x, t), step(x, t))) << i << step.explain();
  }
}

TEST_F(ProofsTest, ThreeValuesAreEnough) {
  double tau = 1;
  session_.host("tau", [&] { return tau; });
  auto step = session_.wrap("step", [&](at::Tensor x) { return x * tau; });
  for (int i = 0; i < 30; ++i) {
    tau = 1.0 / (i + 2);
    const at::Tensor x = at::rand({4});
    ASSERT_TRUE(same_bits(x * tau, step(x))) << i;
  }
  // two probes and the trial, each at another value
  EXPECT_EQ(step.stats().recorded, 2U) << step.explain();
  EXPECT_EQ(step.stats().trials, 1U) << step.explain();
  EXPECT_EQ(step.stats().replayed, 27U) << step.explain();
}

TEST_F(ProofsTest, AValueThatMovesBackWasProved) {
  double tau = 1;
  session_.host("tau", [&] { return tau; });
  auto step = session_.wrap("step", [&](at::Tensor x) { return x * tau; });
  for (int i = 0; i < 40; ++i) {
    tau = i < 10 || i >= 20 ? 1 : 2;
    const at::Tensor x = at::rand({4});
    ASSERT_TRUE(same_bits(x * tau, step(x))) << i;
  }
  EXPECT_LE(step.stats().recorded, 4U) << step.explain();
  EXPECT_GE(step.stats().replayed, 33U) << step.explain();
}

TEST_F(ProofsTest, TwoArgumentsThatAreEqualUntilTheyPart) {
  auto step = session_.wrap("step", [](at::Tensor x, double a, double b) { return x * a + b; });
  for (int i = 0; i < 60; ++i) {
    const double a = 0.5 * i, b = i < 20 ? a : -a;
    const at::Tensor x = at::rand({4});
    ASSERT_TRUE(same_bits(x * a + b, step(x, a, b))) << i << step.explain();
  }
  EXPECT_GE(step.stats().replayed, 40U) << step.explain();
}

TEST_F(ProofsTest, AConstantThatARatePassesBy) {
  auto step = session_.wrap("step", [](at::Tensor x, double a) { return x * a + 0.5; });
  for (int i = 0; i < 40; ++i) {
    const double a = i < 10 ? 0.5 : 0.25 * i;
    const at::Tensor x = at::rand({4});
    ASSERT_TRUE(same_bits(x * a + 0.5, step(x, a))) << i << step.explain();
  }
  EXPECT_GE(step.stats().replayed, 30U) << step.explain();
}

TEST_F(ProofsTest, AConstantThatIsReturnedFollowsNoRead) {
  const auto body = [](const at::Tensor& x, const at::Tensor& noise) {
    const double level = (noise + 0).item<double>();
    return std::make_pair(x + level, 0.0);
  };
  auto step = session_.wrap("step", [&](at::Tensor x, at::Tensor n) { return body(x, n); });
  for (int i = 0; i < 40; ++i) {
    const at::Tensor x = at::rand({4});
    const at::Tensor noise = torch::tensor(i < 10 ? 0.0 : 0.25 * i);
    const auto [expected, constant] = body(x, noise);
    const auto [found, returned] = step(x, noise);
    ASSERT_TRUE(same_bits(expected, found)) << i << step.explain();
    ASSERT_EQ(constant, returned) << i << step.explain();
  }
}

}  // namespace
}  // namespace steptape::tests
