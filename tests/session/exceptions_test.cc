#include <gtest/gtest.h>

#include "tests/session/training.h"

namespace steptape::tests {
namespace {

struct Interruption : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Throws in call `at` of 12, in the middle of the step, and goes on; an eager twin does the same.
class ThrowingStepTest : public ::testing::TestWithParam<int> {};

TEST_P(ThrowingStepTest, LeavesWhatTheEagerStepLeaves) {
  const auto options = torch::optim::SGDOptions(0.1).momentum(0.9);
  SgdTraining eager({true, 0.25}, options), taped({true, 0.25}, options);
  int calls = 0;
  const auto step = [&calls](SgdTraining& training, const Batch& batch) {
    training.optimizer.zero_grad();
    at::Tensor loss =
        torch::nn::functional::cross_entropy(training.model->forward(batch.images), batch.labels);
    if (calls == GetParam()) throw Interruption("in the middle");
    loss.backward();
    training.optimizer.step();
    return loss;
  };
  Session session(quiet());
  session.track("model", taped.model).track("optimizer", taped.optimizer);
  auto train = session.wrap("train", [&](at::Tensor x, at::Tensor y) {
    return step(taped, {x, y});
  });
  for (const Batch& batch : make_batches(12)) {
    ++calls;
    bool threw[2] = {false, false};
    at::Tensor loss[2];
    torch::manual_seed(calls);
    try {
      loss[0] = step(eager, batch);
    } catch (const Interruption&) {
      threw[0] = true;
    }
    torch::manual_seed(calls);
    try {
      loss[1] = train(batch.images, batch.labels);
    } catch (const Interruption&) {
      threw[1] = true;
    }
    // a replay does not run the function, so only calls that are not replays can throw
    if (threw[0] && !threw[1])
      GTEST_FAIL() << "call " << calls << " did not throw\n" << train.explain();
    EXPECT_TRUE(same_bits(loss[0], loss[1])) << "call " << calls;
    EXPECT_TRUE(all_same_bits(visible_state(*eager.model), visible_state(*taped.model)))
        << "call " << calls;
  }
  EXPECT_GE(train.stats().replayed, 5U) << train.explain();
}

// calls 1: warm-up, 2 and 3: probes, 4: trial
INSTANTIATE_TEST_SUITE_P(InEveryPhase, ThrowingStepTest, ::testing::Values(1, 2, 3, 4));

TEST(ThrowingOpTest, AnOpThatThrowsInAReplayLeavesWhatTheEagerStepLeaves) {
  const auto options = torch::optim::SGDOptions(0.1).momentum(0.9);
  SgdTraining eager({true, 0.25}, options), taped({true, 0.25}, options);
  Session session(quiet());
  session.track("model", taped.model).track("optimizer", taped.optimizer);
  auto train = session.wrap("train", [&](at::Tensor x, at::Tensor y) { return taped.step(x, y); });
  int calls = 0;
  for (const Batch& batch : make_batches(14)) {
    ++calls;
    at::Tensor labels = batch.labels;
    if (calls == 9)
      labels = labels + 1000;  // out of range: nll_loss raises after batch norm has written
    std::string message[2];
    for (int i = 0; i < 2; ++i) {
      torch::manual_seed(calls);
      try {
        i == 0 ? eager.step(batch.images, labels) : train(batch.images, labels);
      } catch (const c10::Error& error) {
        message[i] = error.what_without_backtrace();
      }
    }
    EXPECT_EQ(message[0], message[1]);
    EXPECT_EQ(message[0].empty(), calls != 9);
    EXPECT_TRUE(all_same_bits(visible_state(*eager.model), visible_state(*taped.model)))
        << "call " << calls;
  }
  EXPECT_GE(train.stats().replayed, 8U) << train.explain();
  EXPECT_TRUE(train.stats().refusals.empty()) << train.explain();
}

/// The factor of `x`, with more and more on the diagonal until there is one.
at::Tensor factor_of(const at::Tensor& x) {
  for (double more = 1; more < 100; more *= 4) {
    try {
      return at::linalg_cholesky(x * x.t() + (more - 1) * at::eye(x.size(0)));
    } catch (const c10::Error&) {  // not positive definite: more is needed
    }
  }
  return x;
}

class CaughtExceptionTest : public ::testing::TestWithParam<int> {};

TEST_P(CaughtExceptionTest, CostsThatCallAlone) {
  Session session(quiet());
  auto step = session.wrap("step", [](at::Tensor x) { return factor_of(x).sum(); });
  for (int call = 1; call <= 20; ++call) {
    const bool fails = call == GetParam() || call == GetParam() + 6;
    const at::Tensor x = fails ? at::zeros({4, 4}) : at::eye(4) * call;
    EXPECT_TRUE(same_bits(factor_of(x).sum(), step(x))) << "call " << call;
  }
  EXPECT_GE(step.stats().replayed, 11U) << step.explain();
}

// in what is recorded, in the trial, in a replay
INSTANTIATE_TEST_SUITE_P(InEveryPhase, CaughtExceptionTest, ::testing::Range(1, 9));

}  // namespace
}  // namespace steptape::tests
