#include <gtest/gtest.h>

#include "tests/session/training.h"

namespace steptape::tests {
namespace {

struct Outcome {
  std::vector<at::Tensor> losses;
  std::vector<at::Tensor> state;
  at::Tensor random_after;
};

template <typename T>
Outcome train_eagerly(T& training, const std::vector<Batch>& batches) {
  torch::manual_seed(5);
  Outcome outcome;
  for (const Batch& batch : batches) {
    outcome.losses.push_back(training.step(batch.images, batch.labels).detach().clone());
  }
  outcome.state = copied(visible_state(*training.model));
  outcome.random_after = at::rand({4});
  return outcome;
}

template <typename T>
Outcome train_on_tape(T& training, const std::vector<Batch>& batches, Options options,
                      Stats* stats) {
  torch::manual_seed(5);
  Session session(options);
  session.track("model", training.model).track("optimizer", training.optimizer);
  auto train = session.wrap(
      "train", [&](at::Tensor images, at::Tensor labels) { return training.step(images, labels); });
  Outcome outcome;
  for (const Batch& batch : batches) {
    outcome.losses.push_back(train(batch.images, batch.labels).detach().clone());
  }
  outcome.state = copied(visible_state(*training.model));
  outcome.random_after = at::rand({4});
  *stats = train.stats();
  if (::testing::Test::HasFailure() || stats->replayed == 0) std::cerr << train.explain();
  return outcome;
}

void expect_same(const Outcome& a, const Outcome& b) {
  EXPECT_TRUE(all_same_bits(a.losses, b.losses)) << "losses";
  EXPECT_TRUE(all_same_bits(a.state, b.state)) << "parameters, gradients, buffers";
  EXPECT_TRUE(same_bits(a.random_after, b.random_after)) << "random state";
}

struct Case {
  const char* name;
  NetOptions net;
  torch::optim::SGDOptions optimizer;
  Interception interception = Interception::kDispatchMode;
};

std::ostream& operator<<(std::ostream& out, const Case& c) { return out << c.name; }

class ReplayTest : public ::testing::TestWithParam<Case> {};

TEST_P(ReplayTest, LeavesTheBitsOfTheEagerStep) {
  const std::vector<Batch> batches = make_batches(40);
  SgdTraining eager(GetParam().net, GetParam().optimizer);
  const Outcome expected = train_eagerly(eager, batches);
  SgdTraining taped(GetParam().net, GetParam().optimizer);
  Options options = quiet();
  options.interception = GetParam().interception;
  Stats stats;
  const Outcome found = train_on_tape(taped, batches, options, &stats);
  expect_same(expected, found);
  EXPECT_EQ(stats.trials, 1U);
  EXPECT_GE(stats.replayed, 34U);
  EXPECT_EQ(stats.eager, 0U);
  EXPECT_TRUE(stats.refusals.empty());
}

torch::optim::SGDOptions sgd(double momentum = 0, double decay = 0, bool nesterov = false) {
  return torch::optim::SGDOptions(0.1).momentum(momentum).weight_decay(decay).nesterov(nesterov);
}

INSTANTIATE_TEST_SUITE_P(
    Steps, ReplayTest,
    ::testing::Values(Case{"sgd", {}, sgd()}, Case{"momentum", {}, sgd(0.9)},
                      Case{"weight_decay", {}, sgd(0, 0.01)},
                      Case{"nesterov", {}, sgd(0.9, 0.01, true)},
                      Case{"batch_norm", {true, 0}, sgd(0.9)},
                      Case{"dropout", {false, 0.5}, sgd(0.9)},
                      Case{"all_by_key", {true, 0.25}, sgd(0.9, 0.001), Interception::kFakeKey}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(ReplayAuditTest, AuditsAreDrawnAndAgree) {
  const std::vector<Batch> batches = make_batches(60);
  SgdTraining eager({true, 0.25}, sgd(0.9));
  const Outcome expected = train_eagerly(eager, batches);
  SgdTraining taped({true, 0.25}, sgd(0.9));
  Options options;
  options.verify.rate = 0.2;
  options.audit_seed = 3;
  Stats stats;
  const Outcome found = train_on_tape(taped, batches, options, &stats);
  expect_same(expected, found);
  EXPECT_GE(stats.audits, 3U);
  EXPECT_GE(stats.replayed, 30U);
}

TEST(ReplayShapesTest, ALastShortBatchBecomesAVariant) {
  SgdTraining eager({}, sgd(0.9)), taped({}, sgd(0.9));
  std::vector<Batch> batches;
  for (int epoch = 0; epoch < 6; ++epoch) {
    for (const Batch& batch : make_batches(5, 16)) batches.push_back(batch);
    batches.push_back(make_batches(1, 7)[0]);
  }
  const Outcome expected = train_eagerly(eager, batches);
  Stats stats;
  const Outcome found = train_on_tape(taped, batches, quiet(), &stats);
  expect_same(expected, found);
  EXPECT_EQ(stats.variants.size(), 2U);
}

TEST(ReplayForwardTest, AForwardAloneReplays) {
  torch::manual_seed(1);
  Net model;
  model->eval();
  Session session(quiet());
  session.track("model", model);
  auto eval = session.wrap("eval", [&](at::Tensor images) {
    const torch::NoGradGuard no_grad;
    return std::make_tuple(model->forward(images), model->forward(images).argmax(1));
  });
  for (const Batch& batch : make_batches(8)) {
    const torch::NoGradGuard no_grad;
    auto [logits, labels] = eval(batch.images);
    EXPECT_TRUE(same_bits(logits, model->forward(batch.images)));
    EXPECT_TRUE(same_bits(labels, model->forward(batch.images).argmax(1)));
  }
  EXPECT_EQ(eval.stats().replayed, 5U) << eval.explain();
}

TEST(ReplayForwardTest, AnOptimizerStepAloneReplays) {
  SgdTraining eager({}, sgd(0.9, 0.01)), taped({}, sgd(0.9, 0.01));
  Session session(quiet());
  session.track("model", taped.model).track("optimizer", taped.optimizer);
  auto update = session.wrap("update", [&] { taped.optimizer.step(); });
  for (const Batch& batch : make_batches(12)) {
    for (SgdTraining* training : {&eager, &taped}) {
      training->optimizer.zero_grad();
      torch::nn::functional::cross_entropy(training->model->forward(batch.images), batch.labels)
          .backward();
    }
    eager.optimizer.step();
    update();
  }
  EXPECT_TRUE(all_same_bits(visible_state(*eager.model), visible_state(*taped.model)));
  EXPECT_GE(update.stats().replayed, 8U) << update.explain();
}

TEST(ReplayForwardTest, GradientsAccumulateInPlace) {
  SgdTraining eager({}, sgd()), taped({}, sgd());
  Session session(quiet());
  session.track("model", taped.model).track("optimizer", taped.optimizer);
  const auto accumulate = [](SgdTraining& training, const Batch& batch) {
    training.optimizer.zero_grad(/*set_to_none=*/false);
    for (int half = 0; half < 2; ++half) {
      torch::nn::functional::cross_entropy(training.model->forward(batch.images), batch.labels)
          .backward();
    }
    training.optimizer.step();
  };
  auto train = session.wrap("train", [&](at::Tensor images, at::Tensor labels) {
    accumulate(taped, {images, labels});
  });
  for (const Batch& batch : make_batches(12)) {
    accumulate(eager, batch);
    train(batch.images, batch.labels);
  }
  EXPECT_TRUE(all_same_bits(visible_state(*eager.model), visible_state(*taped.model)));
  EXPECT_GE(train.stats().replayed, 7U) << train.explain();
}

TEST(ReplaySessionsTest, TwoStepsOverOneModelAlternate) {
  SgdTraining eager({true, 0}, sgd(0.9)), taped({true, 0}, sgd(0.9));
  Session session(quiet());
  session.track("model", taped.model).track("optimizer", taped.optimizer);
  auto train = session.wrap("train", [&](at::Tensor x, at::Tensor y) { return taped.step(x, y); });
  auto score = [](SgdTraining& training, const at::Tensor& x) {
    const torch::NoGradGuard no_grad;
    training.model->eval();
    at::Tensor result = training.model->forward(x);
    training.model->train();
    return result;
  };
  auto eval = session.wrap("eval", [&](at::Tensor x) { return score(taped, x); });
  for (const Batch& batch : make_batches(12)) {
    EXPECT_TRUE(
        same_bits(eager.step(batch.images, batch.labels), train(batch.images, batch.labels)));
    EXPECT_TRUE(same_bits(score(eager, batch.images), eval(batch.images)));
  }
  EXPECT_GE(train.stats().replayed, 7U) << session.explain();
  EXPECT_GE(eval.stats().replayed, 7U) << session.explain();
}

}  // namespace
}  // namespace steptape::tests
