#include <gtest/gtest.h>

#include "tests/session/training.h"

namespace steptape::tests {
namespace {

/// A taped training that has reached replay.
class VisibleStateTest : public ::testing::Test {
 protected:
  VisibleStateTest()
      : taped_({true, 0}, torch::optim::SGDOptions(0.1).momentum(0.9)), session_(quiet()) {
    session_.track("model", taped_.model).track("optimizer", taped_.optimizer);
    for (const Batch& batch : make_batches(6)) train_(batch.images, batch.labels);
    EXPECT_GE(train_.stats().replayed, 1U) << train_.explain();
  }

  at::Tensor replay(std::uint64_t seed) {
    const Batch batch = make_batches(1, 16, seed)[0];
    const std::uint64_t before = train_.stats().replayed;
    at::Tensor loss = train_(batch.images, batch.labels);
    EXPECT_EQ(train_.stats().replayed, before + 1) << train_.explain();
    return loss;
  }

  SgdTraining taped_;
  Session session_;
  Step<at::Tensor(at::Tensor, at::Tensor)> train_ = session_.wrap(
      "train",
      [this](at::Tensor images, at::Tensor labels) { return taped_.step(images, labels); });
};

TEST_F(VisibleStateTest, ALaterReplayLeavesEarlierResultsAlone) {
  const at::Tensor first = replay(1);
  const at::Tensor kept = first.clone();
  const at::Tensor second = replay(2);
  EXPECT_TRUE(same_bits(first, kept));
  EXPECT_FALSE(same_bits(first, second));
}

TEST_F(VisibleStateTest, ALaterReplayLeavesGradientsThatTheUserKeptAlone) {
  replay(1);
  const at::Tensor kept = taped_.model->fc1->weight.grad();
  const at::Tensor copy = kept.clone();
  replay(2);
  EXPECT_TRUE(same_bits(kept, copy));
  EXPECT_FALSE(same_bits(kept, taped_.model->fc1->weight.grad()));
}

TEST_F(VisibleStateTest, VersionCountersOfWrittenTensorsMoveOn) {
  const auto parameter = taped_.model->fc1->weight._version();
  const auto buffer = taped_.model->norm->running_mean._version();
  replay(1);
  EXPECT_GT(taped_.model->fc1->weight._version(), parameter);
  EXPECT_GT(taped_.model->norm->running_mean._version(), buffer);
}

TEST_F(VisibleStateTest, BackwardThroughAGraphThatAReplayMadeStaleRaises) {
  const Batch batch = make_batches(1)[0];
  const at::Tensor loss = taped_.model->forward(batch.images).sum();
  replay(1);
  EXPECT_THROW(loss.backward(), c10::Error);
}

TEST_F(VisibleStateTest, AResultHasNoGraph) {
  const at::Tensor loss = replay(1);
  EXPECT_FALSE(loss.requires_grad());
  EXPECT_FALSE(loss.grad_fn());
}

TEST_F(VisibleStateTest, BatchNormCountsItsBatches) {
  const auto count = taped_.model->norm->num_batches_tracked.item<std::int64_t>();
  replay(1);
  replay(2);
  EXPECT_EQ(taped_.model->norm->num_batches_tracked.item<std::int64_t>(), count + 2);
}

TEST_F(VisibleStateTest, GradientsAreLeavesWithoutHistory) {
  replay(1);
  const at::Tensor gradient = taped_.model->fc1->weight.grad();
  ASSERT_TRUE(gradient.defined());
  EXPECT_TRUE(gradient.is_leaf());
  EXPECT_FALSE(gradient.requires_grad());
}

TEST(VisibleResultTest, AStepMayReturnItsArgument) {
  Session session(quiet());
  auto step = session.wrap(
      "same", [](at::Tensor x) { return std::make_tuple(x, x.add(1), x.narrow(0, 2, 2)); });
  for (int i = 0; i < 6; ++i) {
    const at::Tensor x = at::rand({8});
    auto [same, sum, part] = step(x);
    EXPECT_TRUE(same.is_same(x));
    EXPECT_TRUE(same_bits(sum, x + 1));
    EXPECT_TRUE(same_bits(part, x.narrow(0, 2, 2)));
    EXPECT_TRUE(part.is_alias_of(x));
  }
  EXPECT_EQ(step.stats().replayed, 3U) << step.explain();
}

TEST(VisibleResultTest, AnArgumentThatTheStepWritesIsWritten) {
  Session session(quiet());
  auto step = session.wrap("grow", [](at::Tensor x) { x.mul_(2).add_(1); });
  for (int i = 0; i < 6; ++i) {
    const at::Tensor x = at::rand({8});
    const at::Tensor expected = x * 2 + 1;
    const auto version = x._version();
    step(x);
    EXPECT_TRUE(same_bits(x, expected));
    EXPECT_GT(x._version(), version);
  }
  EXPECT_EQ(step.stats().replayed, 3U) << step.explain();
}

TEST(VisibleResultTest, ArgumentsMayBeSlicesOfOneStorage) {
  const at::Tensor series = at::rand({64, 16});
  Session session(quiet());
  auto step = session.wrap("pair", [](at::Tensor x, at::Tensor y) { return (x * y).sum(0); });
  for (int i = 0; i < 8; ++i) {
    const at::Tensor x = series.narrow(0, 4 * i, 8), y = series.narrow(0, 4 * i + 4, 8);
    EXPECT_TRUE(same_bits(step(x, y), (x * y).sum(0)));
  }
  EXPECT_EQ(step.stats().replayed, 5U) << step.explain();
}

}  // namespace
}  // namespace steptape::tests
