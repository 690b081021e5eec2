#include <gtest/gtest.h>

#include <vector>

#include "tests/session/training.h"

namespace steptape::tests {
namespace {

/// Reads of what no op of the step writes: arguments, buffers, tensors of the program's. A plan
/// does them before all else, and in each run, beside what it does in the first run alone: every
/// step here makes a constant for that.
class ReadsTest : public ::testing::Test {
 protected:
  ReadsTest() { torch::manual_seed(3); }
  static at::Tensor input() { return at::rand({6}); }
  /// The same bytes in each run: done once.
  static at::Tensor constant() { return at::ones({6}) * 2; }
  Session session_{quiet()};
};

TEST_F(ReadsTest, AnArgumentThatIsReadFirst) {
  const auto body = [](const at::Tensor& x, const at::Tensor& weight) {
    return x * constant() * weight.item<double>();
  };
  auto step = session_.wrap("step", body);
  for (int i = 0; i < 30; ++i) {
    const at::Tensor x = input(), weight = at::full({}, 1 + 0.5 * i);
    ASSERT_TRUE(same_bits(body(x, weight), step(x, weight))) << i;
  }
  EXPECT_GE(step.stats().replayed, 26U) << step.explain();
}

TEST_F(ReadsTest, AnArgumentThatIsReadLast) {
  const auto body = [](const at::Tensor& x, const at::Tensor& weight) {
    const at::Tensor y = x * constant();
    return y * weight.item<double>() + constant();
  };
  auto step = session_.wrap("step", body);
  for (int i = 0; i < 30; ++i) {
    const at::Tensor x = input(), weight = at::full({}, 1 + 0.5 * i);
    ASSERT_TRUE(same_bits(body(x, weight), step(x, weight))) << i;
  }
  EXPECT_GE(step.stats().replayed, 26U) << step.explain();
}

TEST_F(ReadsTest, TwoReadsAmongTwoConstants) {
  const auto body = [](const at::Tensor& x, const at::Tensor& a, const at::Tensor& b) {
    const double first = a.item<double>();
    const at::Tensor y = x * constant() + first;
    return y * b.item<double>() * (constant() + 1);
  };
  auto step = session_.wrap("step", body);
  for (int i = 0; i < 30; ++i) {
    const at::Tensor x = input(), a = at::full({}, 1 + 0.5 * i), b = at::full({}, 9 - 0.25 * i);
    ASSERT_TRUE(same_bits(body(x, a, b), step(x, a, b))) << i;
  }
  EXPECT_GE(step.stats().replayed, 23U) << step.explain();
}

TEST_F(ReadsTest, ABranchOnAFlag) {
  const auto body = [](const at::Tensor& x, const at::Tensor& is_done) {
    return is_done.item<bool>() ? x * constant() : x + constant();
  };
  auto step = session_.wrap("step", body);
  for (int i = 0; i < 60; ++i) {
    const at::Tensor x = input(), is_done = at::full({}, i >= 10 && i % 3 == 0, at::kBool);
    ASSERT_TRUE(same_bits(body(x, is_done), step(x, is_done))) << i;
  }
  EXPECT_GE(step.stats().replayed, 30U) << step.explain();
}

TEST_F(ReadsTest, ABranchOnOneOfFourValues) {
  const auto body = [](const at::Tensor& x, const at::Tensor& which) {
    switch (which.item<std::int64_t>()) {
      case 0:
        return x * constant();
      case 1:
        return x + constant();
      case 2:
        return (x - constant()).relu();
      default:
        return x.exp();
    }
  };
  auto step = session_.wrap("step", body);
  for (int i = 0; i < 100; ++i) {
    const at::Tensor x = input(), which = at::randint(0, 4, {}, at::kLong);
    ASSERT_TRUE(same_bits(body(x, which), step(x, which))) << i;
  }
  EXPECT_EQ(step.stats().variants.size(), 4U);
  EXPECT_GE(step.stats().replayed, 80U) << step.explain();
}

/// A size that is read, so that other tensors have other shapes.
TEST_F(ReadsTest, AShapeThatIsRead) {
  const auto body = [](const at::Tensor& x, const at::Tensor& size) {
    return x.narrow(0, 0, size.item<std::int64_t>()) * constant().narrow(0, 0, 1);
  };
  auto step = session_.wrap("step", body);
  for (int i = 0; i < 100; ++i) {
    const at::Tensor x = input(), size = at::randint(1, 5, {}, at::kLong);
    ASSERT_TRUE(same_bits(body(x, size), step(x, size))) << i;
  }
  EXPECT_GE(step.stats().replayed, 80U) << step.explain();
}

/// What is read follows from a number that nothing explains: which of its values it is, no replay
/// would find out.
TEST_F(ReadsTest, AHiddenNumberThatIsReadBackIsRefused) {
  int calls = 0;
  auto step = session_.wrap("step", [&](const at::Tensor& x) {
    const at::Tensor y = x * (++calls % 2 == 0 ? 0.5 : 2.0);
    return y.sum().item<double>() > 4 ? y.relu() : y;
  });
  const at::Tensor x = at::ones({6});
  for (int i = 0; i < 60; ++i) {
    const double factor = i % 2 == 0 ? 2.0 : 0.5;
    ASSERT_TRUE(same_bits(x * factor, step(x))) << i;
  }
  EXPECT_EQ(step.stats().replayed, 0U) << step.explain();
  EXPECT_FALSE(step.stats().refusals.empty());
}

TEST_F(ReadsTest, AHiddenTensorThatIsReadBackIsRefused) {
  int calls = 0;
  auto step = session_.wrap("step", [&](const at::Tensor& x) {
    const at::Tensor y = x * at::tensor({++calls % 2 == 0 ? 0.5F : 2.0F, 1.0F});
    return y.sum().item<double>() > 2 ? y * 1 : y;
  });
  const at::Tensor x = at::ones({2});
  for (int i = 0; i < 60; ++i) {
    const at::Tensor expected = x * at::tensor({i % 2 == 0 ? 2.0F : 0.5F, 1.0F});
    ASSERT_TRUE(same_bits(expected, step(x))) << i;
  }
  EXPECT_EQ(step.stats().replayed, 0U) << step.explain();
}

TEST_F(ReadsTest, ABufferThatTheProgramChanges) {
  at::Tensor tau = at::ones({});
  session_.track("tau", tau);
  const auto body = [&](const at::Tensor& x) { return x * constant() / tau.item<double>(); };
  auto step = session_.wrap("step", body);
  for (int i = 0; i < 40; ++i) {
    if (i >= 10) tau.fill_(1.0 / i);
    const at::Tensor x = input();
    ASSERT_TRUE(same_bits(body(x), step(x))) << i;
  }
  EXPECT_GE(step.stats().replayed, 34U) << step.explain();
}

TEST_F(ReadsTest, AReadThatIsReturned) {
  auto step = session_.wrap("step", [](const at::Tensor& x, const at::Tensor& weight) {
    return std::make_pair(x * constant(), weight.item<double>());
  });
  for (int i = 0; i < 30; ++i) {
    const at::Tensor x = input(), weight = at::full({}, 1 + 0.5 * i);
    const auto [doubled, read] = step(x, weight);
    ASSERT_TRUE(same_bits(x * constant(), doubled)) << i;
    ASSERT_EQ(read, 1 + 0.5 * i);
  }
  EXPECT_GE(step.stats().replayed, 26U) << step.explain();
}

TEST_F(ReadsTest, ALossIsScaledByAnArgument) {
  SgdTraining eager({}, torch::optim::SGDOptions(0.1)), taped({}, torch::optim::SGDOptions(0.1));
  const auto train = [](SgdTraining& training, const Batch& batch, const at::Tensor& weight) {
    training.optimizer.zero_grad();
    const at::Tensor scores = training.model->forward(batch.images);
    at::Tensor loss = torch::nn::functional::cross_entropy(scores, batch.labels);
    loss = loss * weight.item<double>();
    loss.backward();
    training.optimizer.step();
    return loss.detach();
  };
  session_.track("model", taped.model).track("optimizer", taped.optimizer);
  auto step = session_.wrap("train", [&](at::Tensor x, at::Tensor y, at::Tensor weight) {
    return train(taped, {x, y}, weight);
  });
  const std::vector<Batch> batches = make_batches(30);
  for (int i = 0; i < 30; ++i) {
    const at::Tensor weight = at::full({}, 1 + 0.5 * i);
    const at::Tensor expected = train(eager, batches[i], weight);
    ASSERT_TRUE(same_bits(expected, step(batches[i].images, batches[i].labels, weight))) << i;
    ASSERT_TRUE(all_same_bits(visible_state(*eager.model), visible_state(*taped.model))) << i;
  }
  EXPECT_GE(step.stats().replayed, 25U) << step.explain();
}

}  // namespace
}  // namespace steptape::tests
