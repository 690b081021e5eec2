#include <gtest/gtest.h>

#include "tests/session/training.h"

namespace steptape::tests {
namespace {

/// Of a type that nobody knows.
struct UnknownSgd : torch::optim::SGD {
  using SGD::SGD;
};

/// Training::step with the update put off.
template <typename SomeTraining>
at::Tensor deferring_step(Session& session, SomeTraining& training, const Batch& batch) {
  training.optimizer.zero_grad();
  auto loss =
      torch::nn::functional::cross_entropy(training.model->forward(batch.images), batch.labels);
  loss.backward();
  session.update(training.optimizer);
  return loss;
}

TEST(UpdateTest, AnUnknownOptimizerStepsBehindEveryReplay) {
  using UnknownTraining = Training<UnknownSgd, torch::optim::SGDOptions>;
  const torch::optim::SGDOptions options = torch::optim::SGDOptions(0.1).momentum(0.9);
  UnknownTraining eager({}, options), taped({}, options);
  Session session(quiet());
  session.track("model", taped.model).track("optimizer", taped.optimizer);
  auto train = session.wrap("train", [&](at::Tensor x, at::Tensor y) {
    return deferring_step(session, taped, {x, y});
  });
  double rate = 0.1;
  for (const Batch& batch : make_batches(40)) {
    rate *= 0.95;
    eager.optimizer.param_groups()[0].options().set_lr(rate);
    taped.optimizer.param_groups()[0].options().set_lr(rate);
    ASSERT_TRUE(
        same_bits(eager.step(batch.images, batch.labels), train(batch.images, batch.labels)));
    ASSERT_TRUE(all_same_bits(visible_state(*eager.model), visible_state(*taped.model)));
  }
  EXPECT_GE(train.stats().replayed, 34U) << train.explain();
}

TEST(UpdateTest, OutsideAStepItStepsAtOnce) {
  SgdTraining training({}, torch::optim::SGDOptions(0.1));
  Session session(quiet());
  const Batch batch = make_batches(1)[0];
  training.model->forward(batch.images).sum().backward();
  const at::Tensor before = training.model->fc1->weight.detach().clone();
  session.update(training.optimizer);
  EXPECT_FALSE(same_bits(before, training.model->fc1->weight));
}

/// Its forward decides on a value that differs from call to call.
template <typename Update>
at::Tensor undecided_step(AdamTraining& training, const Batch& batch, int i, Update update) {
  training.optimizer.zero_grad();
  auto loss =
      torch::nn::functional::cross_entropy(training.model->forward(batch.images), batch.labels);
  if ((loss * (i % 3 == 0 ? -1 : 1)).item<double>() < 0) loss = loss * 2;
  loss.backward();
  update();
  return loss;
}

TEST(UpdateTest, WhereTheForwardIsRefusedTheUpdateReplaysAlone) {
  AdamTraining eager({}, torch::optim::AdamOptions(0.01)),
      taped({}, torch::optim::AdamOptions(0.01));
  Options options = quiet();
  options.max_variants = 1;
  Session session(options);
  session.track("model", taped.model).track("optimizer", taped.optimizer);
  int i = 0;
  auto train = session.wrap("train", [&](at::Tensor x, at::Tensor y) {
    return undecided_step(taped, {x, y}, i, [&] { session.update(taped.optimizer); });
  });
  double rate = 0.01;
  for (const Batch& batch : make_batches(60)) {
    rate *= 0.99;
    eager.optimizer.param_groups()[0].options().set_lr(rate);
    taped.optimizer.param_groups()[0].options().set_lr(rate);
    const at::Tensor expected = undecided_step(eager, batch, i, [&] { eager.optimizer.step(); });
    ASSERT_TRUE(same_bits(expected, train(batch.images, batch.labels))) << session.explain();
    ASSERT_TRUE(all_same_bits(visible_state(*eager.model), visible_state(*taped.model))) << i;
    ++i;
  }
  const std::string report = session.explain();
  const auto at = report.find("step \"optimizer.step()\"");
  ASSERT_NE(at, std::string::npos) << report;
  EXPECT_NE(report.find(" 0 eager", at), std::string::npos) << report;
  EXPECT_GE(train.stats().eager, 20U) << report;
}

TEST(UpdateTest, AnUpdateInEverySecondCallIsNeverForgottenOrAdded) {
  SgdTraining eager({}, torch::optim::SGDOptions(0.1)), taped({}, torch::optim::SGDOptions(0.1));
  Session session(quiet());
  session.track("model", taped.model).track("optimizer", taped.optimizer);
  int calls = 0;
  auto train = session.wrap("train", [&](at::Tensor x, at::Tensor y) {
    auto loss = torch::nn::functional::cross_entropy(taped.model->forward(x), y);
    loss.backward();
    if (++calls % 2 == 0) session.update(taped.optimizer);
    return loss;
  });
  int i = 0;
  for (const Batch& batch : make_batches(40)) {
    auto expected =
        torch::nn::functional::cross_entropy(eager.model->forward(batch.images), batch.labels);
    expected.backward();
    if (++i % 2 == 0) eager.optimizer.step();
    ASSERT_TRUE(same_bits(expected, train(batch.images, batch.labels))) << train.explain();
    ASSERT_TRUE(all_same_bits(visible_state(*eager.model), visible_state(*taped.model))) << i;
  }
  EXPECT_EQ(train.stats().replayed, 0U) << train.explain();
}

TEST(UpdateTest, InAStepInsideAStepItComesBehindTheOuterOneHoweverThatRuns) {
  SgdTraining eager({}, torch::optim::SGDOptions(0.1)), taped({}, torch::optim::SGDOptions(0.1));
  Session session(quiet());
  session.track("model", taped.model).track("optimizer", taped.optimizer);
  const auto loss_of = [](SgdTraining& training, const Batch& batch) {
    return torch::nn::functional::cross_entropy(training.model->forward(batch.images),
                                                batch.labels);
  };
  auto inner = session.wrap("inner", [&](at::Tensor x, at::Tensor y) {
    return deferring_step(session, taped, {x, y});
  });
  double sign = 1;
  auto outer = session.wrap("outer", [&](at::Tensor x, at::Tensor y) {
    const at::Tensor loss = inner(x, y);
    if ((loss * sign).item<double>() < 0) return loss * 2;
    return loss + loss_of(taped, {x, y}).detach();
  });
  int i = 0;
  for (const Batch& batch : make_batches(40)) {
    sign = ++i % 3 == 0 ? -1 : 1;
    eager.optimizer.zero_grad();
    at::Tensor expected = loss_of(eager, batch);
    expected.backward();
    expected = sign < 0 ? expected * 2 : expected + loss_of(eager, batch).detach();
    eager.optimizer.step();
    ASSERT_TRUE(same_bits(expected, outer(batch.images, batch.labels))) << session.explain();
    ASSERT_TRUE(all_same_bits(visible_state(*eager.model), visible_state(*taped.model))) << i;
  }
  EXPECT_GT(inner.stats().replayed + outer.stats().replayed, 10U) << session.explain();
}

TEST(UpdateTest, TheNamesOfItsStepsAreItsOwn) {
  Session session(quiet());
  EXPECT_THROW(session.wrap("optimizer.step()", [](at::Tensor x) { return x; }), Error);
}

TEST(UpdateTest, AFailedAuditThrowsBehindTheUpdate) {
  SgdTraining eager({}, torch::optim::SGDOptions(0.1)), taped({}, torch::optim::SGDOptions(0.1));
  Options options;
  options.verify.rate = 1;
  Session session(options);
  session.track("model", taped.model).track("optimizer", taped.optimizer);
  double hidden = 1;
  auto train = session.wrap("train", [&](at::Tensor x, at::Tensor y) {
    return deferring_step(session, taped, {x * hidden, y});
  });
  int thrown = 0;
  int i = 0;
  for (const Batch& batch : make_batches(12)) {
    hidden = ++i < 8 ? 1 : 2;
    eager.step(batch.images * hidden, batch.labels);
    try {
      train(batch.images, batch.labels);
    } catch (const Error&) {
      ++thrown;
    }
    ASSERT_TRUE(all_same_bits(visible_state(*eager.model), visible_state(*taped.model))) << i;
  }
  EXPECT_EQ(thrown, 1) << session.explain();
}

TEST(UpdateTest, ARefusedUpdateNeverThrowsBehindAStepThatRan) {
  AdamTraining eager({}, torch::optim::AdamOptions(0.01)),
      taped({}, torch::optim::AdamOptions(0.01));
  Options options = quiet();
  options.on_refusal = OnRefusal::kThrow;
  Session session(options);
  session.track("model", taped.model).track("optimizer", taped.optimizer);
  auto train = session.wrap("train", [&](at::Tensor x, at::Tensor y) {
    for (const at::Tensor& parameter : taped.model->parameters()) parameter.mutable_grad().reset();
    auto loss = torch::nn::functional::cross_entropy(taped.model->forward(x), y);
    loss.backward();
    session.update(taped.optimizer);
    return loss;
  });
  for (const Batch& batch : make_batches(40)) {
    // state that is new in every call: the update is a warm-up for ever
    eager.optimizer.state().clear();
    taped.optimizer.state().clear();
    eager.step(batch.images, batch.labels);
    try {
      train(batch.images, batch.labels);
    } catch (const Error&) {
      // refused before it ran, which is what was asked for
      return;
    }
    ASSERT_TRUE(all_same_bits(visible_state(*eager.model), visible_state(*taped.model)))
        << session.explain();
  }
}

template <typename SomeTraining>
void train_and_save(SomeTraining& training, const std::vector<Batch>& batches,
                    const std::string& path) {
  Session session(quiet());
  session.track("model", training.model).track("optimizer", training.optimizer);
  auto train = session.wrap("train", [&](at::Tensor x, at::Tensor y) {
    return deferring_step(session, training, {x, y});
  });
  for (const Batch& batch : batches) train(batch.images, batch.labels);
  ASSERT_GT(train.stats().replayed, 0U) << train.explain();
  session.save(path);
}

TEST(UpdateTest, APlayerStepsAKnownOptimizerBehindTheStep) {
  const std::string path = ::testing::TempDir() + "/update.tape";
  AdamTraining training({}, torch::optim::AdamOptions(0.01));
  train_and_save(training, make_batches(12), path);
  Player player = load(path);
  for (const Batch& batch : make_batches(8, 16, 99)) {
    const at::Tensor expected = training.step(batch.images, batch.labels);
    ASSERT_TRUE(same_bits(expected, player.step("train")(batch.images, batch.labels)));
  }
  EXPECT_TRUE(same_bits(training.model->fc1->weight, player.tensor("model.fc1.weight")));
  EXPECT_EQ(player.scalar("optimizer.state[model.fc1.weight].step"), 20);
}

TEST(UpdateTest, APlayerRefusesAStepWhoseOptimizerTheTraceDoesNotHold) {
  const std::string path = ::testing::TempDir() + "/unknown_update.tape";
  Training<UnknownSgd, torch::optim::SGDOptions> training({}, torch::optim::SGDOptions(0.1));
  train_and_save(training, make_batches(12), path);
  try {
    load(path);
    FAIL() << "loaded";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("is followed by a step of `optimizer`"),
              std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace steptape::tests
