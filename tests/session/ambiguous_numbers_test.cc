#include <gtest/gtest.h>

#include <cmath>

#include "tests/session/training.h"

namespace steptape::tests {
namespace {

/// Numbers that look alike in the probes and part later, and numbers that do more than enter an op:
/// none may be followed to where the program does not go.
class AmbiguousNumbersTest : public ::testing::Test {
 protected:
  AmbiguousNumbersTest() { torch::manual_seed(3); }

  /// Runs `body` eagerly and on tape on the same inputs.
  template <typename Body, typename Input>
  void expect_same(Body body, Input input, int calls = 40) {
    auto step = session_.wrap("step", [body](at::Tensor x) { return body(x); });
    for (int i = 0; i < calls; ++i) {
      const at::Tensor x = input(i);
      ASSERT_TRUE(same_bits(body(x), step(x))) << "call " << i << "\n" << step.explain();
    }
  }
  Session session_{quiet()};
};

TEST_F(AmbiguousNumbersTest, ABoundBeyondTheSize) {
  auto step =
      session_.wrap("step", [](at::Tensor x, std::int64_t n) { return x.slice(0, 0, n) * 2; });
  for (int i = 0; i < 20; ++i) {
    const at::Tensor x = at::rand({16});
    const std::int64_t n = 100 - 6 * i;
    ASSERT_TRUE(same_bits(x.slice(0, 0, n) * 2, step(x, n))) << step.explain();
  }
}

TEST_F(AmbiguousNumbersTest, AReturnedReadThatAlsoDecides) {
  at::Tensor total = at::zeros({4}), mirror = at::zeros({4});
  session_.track("total", total);
  const auto body = [](at::Tensor& sum, const at::Tensor& x) {
    const bool ok = x.isfinite().all().item<bool>();
    if (ok) sum.add_(x);
    return std::make_pair(sum * 2, ok);
  };
  auto step = session_.wrap("step", [&](at::Tensor x) { return body(total, x); });
  for (int i = 0; i < 30; ++i) {
    const at::Tensor x = i % 7 == 6 ? at::full({4}, NAN) : at::rand({4});
    ASSERT_EQ(body(mirror, x).second, step(x).second);
    ASSERT_TRUE(same_bits(mirror, total)) << step.explain();
  }
  EXPECT_GE(step.stats().replayed, 15U) << step.explain();
}

TEST_F(AmbiguousNumbersTest, AReadThatIsFiniteNoLonger) {
  at::Tensor total = at::zeros({1}), mirror = at::zeros({1});
  session_.track("total", total);
  const auto body = [](at::Tensor& sum, const at::Tensor& x) {
    const double value = x.sum().item<double>();
    if (!std::isfinite(value)) return value;
    sum.add_(1);
    return value;
  };
  auto step = session_.wrap("step", [&](at::Tensor x) { return body(total, x); });
  for (int i = 0; i < 30; ++i) {
    const at::Tensor x = i == 15 ? at::full({4}, NAN) : at::rand({4});
    const double expected = body(mirror, x), found = step(x);
    ASSERT_TRUE(expected == found || (std::isnan(expected) && std::isnan(found)));
    ASSERT_TRUE(same_bits(mirror, total)) << i << step.explain();
  }
}

TEST_F(AmbiguousNumbersTest, TwoReturnedReadsThatAreEqualAtFirst) {
  const auto body = [](const at::Tensor& x) {
    return std::make_pair((x > 10).sum().item<std::int64_t>(), (x < 0).sum().item<std::int64_t>());
  };
  auto step = session_.wrap("step", [&](at::Tensor x) { return body(x); });
  for (int i = 0; i < 40; ++i) {
    at::Tensor x = at::rand({4});
    if (i > 10 && i % 3 == 0) x = x - 0.5;
    if (i > 10 && i % 5 == 0) x = x * 100;
    ASSERT_EQ(body(x), step(x)) << i << step.explain();
  }
}

TEST_F(AmbiguousNumbersTest, ANumberThatIsReadTwice) {
  auto step = session_.wrap("step", [](at::Tensor x) {
    const at::Tensor sum = x.sum();
    return std::make_pair(sum.item<double>(), sum.item<double>());
  });
  for (int i = 0; i < 20; ++i) {
    const at::Tensor x = at::rand({4});
    const double sum = x.sum().item<double>();
    ASSERT_EQ(step(x), std::make_pair(sum, sum));
  }
  EXPECT_GE(step.stats().replayed, 16U) << step.explain();
}

TEST_F(AmbiguousNumbersTest, TwoReadsThatFitOneScalar) {
  expect_same(
      [](const at::Tensor& x) {
        const at::Tensor y = x.abs();
        const double a = x.max().item<double>(), b = y.max().item<double>();
        return at::stack({x / b, x * 0 + (a > 100 ? 1 : 0)});
      },
      [](int i) { return i < 10 ? at::rand({4}) : at::rand({4}) - 0.9; });
}

TEST_F(AmbiguousNumbersTest, TwoHostValuesThatPart) {
  double a = 0, b = 0;
  session_.host("a", [&] { return a; }).host("b", [&] { return b; });
  auto step = session_.wrap("step", [&](at::Tensor x) { return x * b; });
  for (int i = 0; i < 60; ++i) {
    a = 1.0 / (i + 1);
    // a value that moves and enters nothing is refused while it does so
    b = i < 20 || i > 40 ? a : -a;
    const at::Tensor x = at::rand({4});
    ASSERT_TRUE(same_bits(x * b, step(x))) << i << step.explain();
  }
  EXPECT_GE(step.stats().replayed, 30U) << step.explain();
}

TEST_F(AmbiguousNumbersTest, ZerosOfBothSigns) {
  double a = 0, b = 0;
  session_.host("a", [&] { return a; }).host("b", [&] { return b; });
  auto step = session_.wrap("step", [&](at::Tensor x) { return x * b; });
  for (int i = 0; i < 20; ++i) {
    a = b = i + 1;
    if (i > 10) a = 0.0, b = -0.0;
    const at::Tensor x = at::rand({4});
    ASSERT_TRUE(same_bits(x * b, step(x))) << i;
  }
}

TEST_F(AmbiguousNumbersTest, IntegersThatNoDoubleHolds) {
  std::int64_t k = 0;
  session_.host("k", [&] { return k; });
  auto step = session_.wrap("step", [&](at::Tensor x) {
    return std::make_pair(x.bitwise_xor(k), x.max().item<std::int64_t>());
  });
  for (int i = 0; i < 30; ++i) {
    k = (std::int64_t{1} << 60) + i;
    const at::Tensor x = at::full({3}, k - 1);
    const auto [found, largest] = step(x);
    ASSERT_TRUE(same_bits(x.bitwise_xor(k), found));
    ASSERT_EQ(largest, k - 1) << step.explain();
  }
}

TEST_F(AmbiguousNumbersTest, FlagsAreNoNumbers) {
  double tau = 0;
  session_.host("tau", [&] { return tau; });
  auto step = session_.wrap("step", [&](at::Tensor x) { return x * torch::tensor(tau > 0.5); });
  auto returned =
      session_.wrap("returned", [](at::Tensor x) { return x.mean().item<double>() == 1; });
  for (int i = 0; i < 40; ++i) {
    tau = i < 3 ? i % 2 : 0.05 * i;
    const at::Tensor x = at::rand({4});
    ASSERT_TRUE(same_bits(x * torch::tensor(tau > 0.5), step(x))) << i;
    const at::Tensor y = at::full({2}, static_cast<double>(i < 3 ? i % 2 : i));
    ASSERT_EQ(y.mean().item<double>() == 1, returned(y)) << i;
  }
}

TEST_F(AmbiguousNumbersTest, SizesByAScalar) {
  auto step = session_.wrap(
      "step", [](at::Tensor x, double end) { return at::arange(end).sum() + x.sum() * end; });
  for (int i = 0; i < 30; ++i) {
    const at::Tensor x = at::rand({4});
    const double end = 4 + 0.1 * i;
    ASSERT_TRUE(same_bits(at::arange(end).sum() + x.sum() * end, step(x, end))) << i;
  }
}

TEST_F(AmbiguousNumbersTest, TwoOptimizersThatLookAlike) {
  using torch::optim::SGD;
  torch::manual_seed(1);
  torch::nn::Linear a(3, 2);
  torch::manual_seed(1);
  torch::nn::Linear b(3, 2);
  SGD first_a(a->parameters(), 0.1), second_a(a->parameters(), 0.1);
  SGD first_b(b->parameters(), 0.1), second_b(b->parameters(), 0.1);
  session_.track("model", b).track("first", first_b).track("second", second_b);
  const auto body = [](torch::nn::Linear& model, SGD& optimizer, const at::Tensor& x) {
    model->zero_grad();
    const at::Tensor loss = model->forward(x).square().sum();
    loss.backward();
    optimizer.step();
    return loss;
  };
  auto step = session_.wrap("step", [&](at::Tensor x) { return body(b, second_b, x); });
  for (int i = 0; i < 60; ++i) {
    const double rate = 0.1 / (i + 1);
    for (SGD* optimizer : {&first_a, &second_a, &first_b, &second_b}) {
      const bool parted = i >= 30 && (optimizer == &first_a || optimizer == &first_b);
      optimizer->param_groups()[0].options().set_lr(parted ? rate / 2 : rate);
    }
    const at::Tensor x = at::rand({4, 3});
    ASSERT_TRUE(same_bits(body(a, second_a, x), step(x))) << i << step.explain();
    ASSERT_TRUE(all_same_bits(visible_state(*a), visible_state(*b))) << i << step.explain();
  }
  EXPECT_GE(step.stats().replayed, 40U) << step.explain();
}

TEST_F(AmbiguousNumbersTest, AParameterInTwoGroupsCountsOnce) {
  using torch::optim::Adam;
  const auto make = [](torch::nn::Linear& model) {
    std::vector<torch::optim::OptimizerParamGroup> groups;
    groups.emplace_back(model->parameters());
    groups.emplace_back(std::vector<at::Tensor>{model->weight});
    return Adam(groups, torch::optim::AdamOptions(0.01));
  };
  torch::manual_seed(1);
  torch::nn::Linear a(3, 2);
  torch::manual_seed(1);
  torch::nn::Linear b(3, 2);
  Adam mine = make(a), other = make(b);
  session_.track("model", b).track("optimizer", other);
  const auto body = [](torch::nn::Linear& model, Adam& optimizer, const at::Tensor& x) {
    optimizer.zero_grad();
    const at::Tensor loss = model->forward(x).square().sum();
    loss.backward();
    optimizer.step();
    return loss;
  };
  auto step = session_.wrap("step", [&](at::Tensor x) { return body(b, other, x); });
  const auto count = [](Adam& optimizer, const at::Tensor& parameter) {
    return static_cast<torch::optim::AdamParamState&>(
               *optimizer.state().at(parameter.unsafeGetTensorImpl()))
        .step();
  };
  for (int i = 0; i < 20; ++i) {
    const at::Tensor x = at::rand({4, 3});
    ASSERT_TRUE(same_bits(body(a, mine, x), step(x))) << i << step.explain();
    ASSERT_EQ(count(mine, a->weight), count(other, b->weight)) << step.explain();
  }
}

TEST_F(AmbiguousNumbersTest, AnOptimizerThatNobodyTrackedBesideOneThatIs) {
  using torch::optim::SGD;
  torch::manual_seed(1);
  torch::nn::Linear a(3, 2);
  torch::manual_seed(1);
  torch::nn::Linear b(3, 2);
  SGD mine(a->parameters(), torch::optim::SGDOptions(0.1).weight_decay(0.1));
  SGD other(b->parameters(), torch::optim::SGDOptions(0.1).weight_decay(0.1));
  torch::optim::Adam tracked(b->parameters(), 0.1);
  session_.track("model", b).track("optimizer", tracked);
  const auto body = [](torch::nn::Linear& model, SGD& optimizer, const at::Tensor& x) {
    const at::Tensor loss = model->forward(x).square().sum();
    loss.backward();
    optimizer.step();
    optimizer.zero_grad();
    return loss;
  };
  auto step = session_.wrap("step", [&](at::Tensor x) { return body(b, other, x); });
  for (int i = 0; i < 30; ++i) {
    const double rate = i < 10 ? 0.1 : 0.01;
    mine.param_groups()[0].options().set_lr(rate);
    other.param_groups()[0].options().set_lr(rate);
    const at::Tensor x = at::rand({4, 3});
    ASSERT_TRUE(same_bits(body(a, mine, x), step(x))) << i << step.explain();
  }
}

TEST_F(AmbiguousNumbersTest, HostFunctionsOfNestedStepsAreCalledOnce) {
  int k = 0;
  session_.host("k", [&] { return ++k; });
  auto inner = session_.wrap("inner", [&](at::Tensor x) { return x * k; });
  std::vector<at::Tensor> kept;
  auto outer = session_.wrap("outer", [&](at::Tensor x) {
    kept.push_back(x + 1);
    return inner(x) + k;
  });
  for (int i = 1; i < 40; ++i) {
    const at::Tensor x = at::rand({4});
    ASSERT_TRUE(same_bits(x * i + i, outer(x)));
    ASSERT_EQ(k, i);
  }
}

TEST_F(AmbiguousNumbersTest, PlansMayBeInvalidatedFromInsideAStep) {
  Options options = quiet();
  options.verify.rate = 1;
  Session session(options);
  int calls = 0;
  auto step = session.wrap("step", [&](at::Tensor x) {
    if (++calls % 5 == 0) session.invalidate("from inside");
    return x * 2;
  });
  for (int i = 0; i < 30; ++i) {
    const at::Tensor x = at::rand({4});
    ASSERT_TRUE(same_bits(x * 2, step(x)));
  }
}

TEST_F(AmbiguousNumbersTest, StateThatIsClearedBeforeEveryStepDoesNotRecordForEver) {
  AdamTraining taped({}, torch::optim::AdamOptions(1e-3));
  session_.track("model", taped.model).track("optimizer", taped.optimizer);
  auto train = session_.wrap("train", [&](at::Tensor x, at::Tensor y) { return taped.step(x, y); });
  for (const Batch& batch : make_batches(100)) {
    taped.optimizer.state().clear();
    train(batch.images, batch.labels);
  }
  EXPECT_LT(train.stats().recorded, 30U) << train.explain();
}

}  // namespace
}  // namespace steptape::tests
