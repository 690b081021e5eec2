#include <gtest/gtest.h>

#include <functional>
#include <string>

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

TEST_F(VisibleStateTest, AResultWhoseGraphIsConsumedSaysSoAsTheEagerOneDoes) {
  const Batch batch = make_batches(1)[0];
  const at::Tensor eager = taped_.step(batch.images, batch.labels);
  const at::Tensor loss = replay(1);
  EXPECT_TRUE(loss.requires_grad());
  EXPECT_FALSE(loss.is_leaf());
  EXPECT_EQ(loss.grad_fn()->name(), eager.grad_fn()->name());
  const auto thrown = [](const at::Tensor& tensor) -> std::string {
    try {
      tensor.backward();
    } catch (const std::exception& error) {
      const std::string text = error.what();  // a backtrace may follow
      return text.substr(0, text.find('\n'));
    }
    return "nothing";
  };
  EXPECT_EQ(thrown(loss), thrown(eager));
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

/// An object of an earlier replay may be used again, where nobody can tell.
TEST_F(VisibleStateTest, GradientsAreNewWhateverWasDoneWithThoseBefore) {
  SgdTraining eager({true, 0}, torch::optim::SGDOptions(0.1).momentum(0.9));
  for (const Batch& batch : make_batches(6)) eager.step(batch.images, batch.labels);
  at::Tensor kept;
  const std::vector<std::function<void(at::Tensor&)>> deeds = {
      [](at::Tensor&) {},
      [](at::Tensor& gradient) { gradient.mul_(2); },
      [](at::Tensor& gradient) { gradient.t_(); },
      [](at::Tensor& gradient) { gradient.detach().zero_(); },
      [](at::Tensor& gradient) { gradient.requires_grad_(); },
      [](at::Tensor& gradient) { gradient.unsafeGetTensorImpl()->_set_neg(true); },
      [](at::Tensor& gradient) { gradient.set_data(at::ones_like(gradient)); },
      [&kept](at::Tensor& gradient) {
        kept = gradient.view({-1});
        gradient.set_data(at::ones_like(gradient));
      },
      [](at::Tensor& gradient) { gradient.resize_({0}); },
      [&kept](at::Tensor& gradient) { kept = gradient; },
      [&kept](at::Tensor& gradient) { kept = gradient.narrow(0, 0, 1); },
      [](at::Tensor& gradient) { gradient.reset(); },
  };
  for (std::size_t i = 0; i < 3 * deeds.size(); ++i) {
    const Batch batch = make_batches(1, 16, i)[0];
    const at::Tensor before = kept.defined() ? kept.clone() : at::Tensor();
    eager.step(batch.images, batch.labels);
    train_(batch.images, batch.labels);
    EXPECT_TRUE(!kept.defined() || same_bits(kept, before)) << i;
    at::Tensor& gradient = taped_.model->fc1->weight.mutable_grad();
    EXPECT_TRUE(same_bits(gradient, eager.model->fc1->weight.grad())) << i;
    EXPECT_EQ(gradient._version(), eager.model->fc1->weight.grad()._version()) << i;
    EXPECT_FALSE(gradient.requires_grad() || gradient.is_neg()) << i;
    deeds[i % deeds.size()](gradient);
  }
  EXPECT_GE(train_.stats().replayed, 2 * deeds.size()) << train_.explain();
}

/// As `p.data = value` in Python: the old memory stays with those who hold it.
TEST(VisibleResultTest, AStepMayGiveItsParametersOtherMemory) {
  SgdTraining eager({true, 0}, torch::optim::SGDOptions(0.1));
  SgdTraining taped({true, 0}, torch::optim::SGDOptions(0.1));
  const auto step_of = [](SgdTraining& training) {
    return [&training](at::Tensor images, at::Tensor labels) {
      const at::Tensor loss = training.step(images, labels);
      for (at::Tensor& parameter : training.model->parameters()) {
        const at::NoGradGuard no_grad;
        parameter.mul_(0.999);
        parameter.set_data(parameter.detach() * 0.99);
        parameter.add_(0.001);
      }
      return loss;
    };
  };
  Session session(quiet());
  session.track("model", taped.model).track("optimizer", taped.optimizer);
  auto step = session.wrap("train", step_of(taped));
  const auto train = step_of(eager);
  for (std::size_t i = 0; i < 24; ++i) {
    const Batch batch = make_batches(1, 16, i)[0];
    const at::Tensor before = taped.model->fc1->weight.detach();
    const at::Tensor before_eager = eager.model->fc1->weight.detach();
    EXPECT_TRUE(same_bits(train(batch.images, batch.labels), step(batch.images, batch.labels)))
        << i;
    EXPECT_TRUE(all_same_bits(visible_state(*eager.model), visible_state(*taped.model))) << i;
    EXPECT_TRUE(same_bits(before, before_eager)) << i;
    EXPECT_FALSE(before.is_alias_of(taped.model->fc1->weight)) << i;
    EXPECT_EQ(taped.model->fc1->weight._version(), eager.model->fc1->weight._version()) << i;
  }
  EXPECT_GE(step.stats().replayed, 15U) << step.explain();
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

/// Which version counters of parameters and module buffers an eager step moves, and a replay.
template <typename T, typename Options>
void expect_same_moves(const Options& options, bool weights_move) {
  T training({true, 0}, options);
  Session session(quiet());
  session.track("model", training.model).track("optimizer", training.optimizer);
  auto train =
      session.wrap("train", [&](at::Tensor x, at::Tensor y) { return training.step(x, y); });
  const auto tensors = [&] {
    std::vector<at::Tensor> all = training.model->parameters();
    for (const at::Tensor& buffer : training.model->buffers()) all.push_back(buffer);
    return all;
  };
  const auto moves = [&](const auto& step) {
    std::vector<std::uint32_t> before, after;
    for (const at::Tensor& tensor : tensors()) before.push_back(tensor._version());
    const Batch batch = make_batches(1)[0];
    step(batch.images, batch.labels);
    std::vector<bool> moved;
    for (std::size_t i = 0; i < before.size(); ++i) {
      moved.push_back(tensors()[i]._version() != before[i]);
    }
    return moved;
  };
  for (const Batch& batch : make_batches(6)) train(batch.images, batch.labels);
  const std::vector<bool> eager =
      moves([&](const at::Tensor& x, const at::Tensor& y) { training.step(x, y); });
  const std::uint64_t before = train.stats().replayed;
  EXPECT_EQ(moves(train), eager);
  EXPECT_EQ(train.stats().replayed, before + 1) << train.explain();
  EXPECT_EQ(eager[0], weights_move);
}

TEST(VersionCountersTest, MoveAsInTheEagerStep) {
  // LibTorch's SGD writes through .data(), which moves none
  expect_same_moves<SgdTraining>(torch::optim::SGDOptions(0.1), false);
  expect_same_moves<AdamTraining>(torch::optim::AdamOptions(0.1), true);
}

TEST(VersionCountersTest, BackwardThroughAGraphThatAReplayMadeStaleRaises) {
  AdamTraining training({}, torch::optim::AdamOptions(0.1));
  Session session(quiet());
  session.track("model", training.model).track("optimizer", training.optimizer);
  auto train =
      session.wrap("train", [&](at::Tensor x, at::Tensor y) { return training.step(x, y); });
  for (const Batch& batch : make_batches(6)) train(batch.images, batch.labels);
  const Batch batch = make_batches(1)[0];
  const at::Tensor loss = training.model->forward(batch.images).sum();
  const std::uint64_t before = train.stats().replayed;
  train(batch.images, batch.labels);
  ASSERT_EQ(train.stats().replayed, before + 1);
  EXPECT_THROW(loss.backward(), c10::Error);
}

TEST(VisibleResultTest, ArgumentsMayBeSlicesOfOneStorage) {
  const at::Tensor series = at::rand({64, 16});
  Session session(quiet());
  auto step = session.wrap("pair", [](at::Tensor x, at::Tensor y) { return (x * y).sum(0); });
  for (std::int64_t i = 0; i < 8; ++i) {
    const at::Tensor x = series.narrow(0, 4 * i, 8), y = series.narrow(0, 4 * i + 4, 8);
    EXPECT_TRUE(same_bits(step(x, y), (x * y).sum(0)));
  }
  EXPECT_EQ(step.stats().replayed, 5U) << step.explain();
}

TEST(VisibleGradientTest, AGradientThatIsReturnedIsTheOneOfThisCall) {
  at::Tensor parameter = at::rand({4}).requires_grad_();
  torch::optim::SGD optimizer({parameter}, 0.1);
  Session session(quiet());
  session.track("optimizer", optimizer);
  at::Tensor seen;
  auto step = session.wrap("step", [&](at::Tensor x) {
    session.observe(parameter.grad(), [&](const at::Tensor& gradient) { seen = gradient; });
    return std::make_pair(x * 2, parameter.grad());
  });
  for (int i = 0; i < 20; ++i) {
    parameter.mutable_grad() = at::full({4}, i);
    ASSERT_TRUE(same_bits(step(at::rand({4})).second, at::full({4}, i))) << step.explain();
    ASSERT_TRUE(same_bits(seen, at::full({4}, i))) << i;
  }
  EXPECT_GE(step.stats().replayed, 14U) << step.explain();
}

TEST(VisibleGradientTest, AGradientThatWasReplacedIsReturnedAndWritten) {
  at::Tensor eager = at::ones({4}).requires_grad_(), taped = at::ones({4}).requires_grad_();
  torch::optim::SGD optimizer({taped}, 0.1);
  Session session(quiet());
  session.track("optimizer", optimizer);
  const auto accumulate = [](at::Tensor& parameter, const at::Tensor& x) {
    (parameter * x).sum().backward();
    return parameter.grad().slice(0, 1, 3);
  };
  auto step = session.wrap("step", [&](at::Tensor x) { return accumulate(taped, x); });
  for (int i = 0; i < 30; ++i) {
    if (i % 7 == 6) {
      eager.mutable_grad() = eager.grad().clone();
      taped.mutable_grad() = taped.grad().clone();
    }
    const at::Tensor x = at::rand({4});
    ASSERT_TRUE(same_bits(accumulate(eager, x), step(x))) << i << step.explain();
    ASSERT_TRUE(same_bits(eager.grad(), taped.grad())) << i;
  }
  EXPECT_GE(step.stats().replayed, 20U) << step.explain();
}

TEST(VisibleGradientTest, AnArgumentIsLeftRequiringAGradientWithOneWhereTheStepAsksForIt) {
  Session session(quiet());
  auto step = session.wrap("step", [](at::Tensor x) {
    x.requires_grad_();
    (x * x).sum().backward();
  });
  for (int i = 0; i < 20; ++i) {
    const at::Tensor x = at::rand({4});
    step(x);
    ASSERT_TRUE(x.requires_grad()) << i << step.explain();
    ASSERT_TRUE(same_bits(x.grad(), 2 * x.detach())) << i;
  }
  EXPECT_GE(step.stats().replayed, 14U) << step.explain();
}

TEST(VisibleGradientTest, ATrackedTensorHasItsGradientTracked) {
  at::Tensor eager = at::ones({4}).requires_grad_(), taped = at::ones({4}).requires_grad_();
  Session session(quiet());
  session.track("weight", taped);
  const auto learn = [](at::Tensor& weight, const at::Tensor& x) {
    // whether a gradient is there decides, though no op shows it
    at::Tensor loss = weight.grad().defined() ? (weight * x).sum() : (weight + x).sum();
    loss.backward();
    return loss.detach();
  };
  auto step = session.wrap("learn", [&](at::Tensor x) { return learn(taped, x); });
  for (int i = 0; i < 30; ++i) {
    if (i % 7 == 0) {
      eager.mutable_grad().reset();
      taped.mutable_grad().reset();
    }
    const at::Tensor x = at::rand({4});
    ASSERT_TRUE(same_bits(learn(eager, x), step(x))) << i << step.explain();
    ASSERT_TRUE(same_bits(eager.grad(), taped.grad())) << i;
  }
  EXPECT_GE(step.stats().replayed, 15U) << step.explain();
}

}  // namespace
}  // namespace steptape::tests
