#include <c10/core/impl/LocalDispatchKeySet.h>
#include <gtest/gtest.h>
#include <torch/library.h>

#include <atomic>

#include "tests/session/training.h"
#include "tests/session/verify/find_refusal.h"

namespace steptape::tests {
namespace {

/// Where `erfc_` runs: steps are listened to by the key `Fake` while plans run below all that.
bool runs_in_plan() {
  return !c10::impl::tls_local_dispatch_key_set().included_.has(c10::DispatchKey::Fake);
}

std::atomic<int> calls{0};

at::Tensor with_noise(const at::Tensor& x) {
  return x + 1e-3 * (1 + 1e-4 * static_cast<double>(++calls % 7));
}

/// While it lives, an op in place on the CPU does another function. (Others a plan may do by
/// another overload, or a kernel of its own.)
class Replaced {
 public:
  using Function = std::function<at::Tensor(const at::Tensor&)>;
  explicit Replaced(Function function, const char* op = "erfc_") {
    library_.impl(op, [function = std::move(function)](at::Tensor& x) -> at::Tensor& {
      return x.copy_(function(x));
    });
  }

 private:
  torch::Library library_{torch::Library::IMPL, "aten", c10::DispatchKey::CPU, __FILE__, __LINE__};
};

/// A step with `erfc_` in the middle of its forward pass.
struct Noisy {
  SgdTraining taped{{}, torch::optim::SGDOptions(0.1)};
  Session session;
  Step<at::Tensor(at::Tensor, at::Tensor)> train;

  explicit Noisy(const Options& options)
      : session(options),
        train((session.track("model", taped.model).track("optimizer", taped.optimizer),
               session.wrap("train", [this](at::Tensor x, at::Tensor y) {
                 return taped.step(x.clone().erfc_() + 2 * x, y);
               }))) {}

  void run(std::size_t calls) {
    for (const Batch& batch : make_batches(calls)) train(batch.images, batch.labels);
  }
};

Options audited() {
  Options options;
  options.verify.rate = 1;
  return options;
}

TEST(NondeterministicTest, AnOpThatDiffersFromItselfIsListedAndTheRestReplays) {
  const Replaced replaced(with_noise);
  Noisy noisy(quiet());
  noisy.run(20);
  const Stats stats = noisy.train.stats();
  EXPECT_GE(stats.replayed, 14U) << noisy.train.explain();
  EXPECT_TRUE(stats.refusals.empty()) << noisy.train.explain();
  ASSERT_EQ(stats.variants.at(0).nondeterministic.size(), 1U) << noisy.train.explain();
  const NondeterministicOp& op = stats.variants[0].nondeterministic[0];
  EXPECT_EQ(op.op, "aten::erfc_");
  EXPECT_GE(op.op_index, 0);
  EXPECT_GT(op.spread, 0);
  EXPECT_LT(op.spread, 1e-5);
  EXPECT_NE(noisy.train.explain().find("leaves other bits each time: op"), std::string::npos)
      << noisy.train.explain();
}

TEST(NondeterministicTest, EveryAuditComparesTheRestBitForBit) {
  const Replaced replaced(with_noise);
  Noisy noisy(audited());
  noisy.run(30);
  EXPECT_GE(noisy.train.stats().audits, 20U) << noisy.train.explain();
  EXPECT_TRUE(noisy.train.stats().refusals.empty()) << noisy.train.explain();
}

TEST(NondeterministicTest, AStrictSessionRefusesTheStep) {
  const Replaced replaced(with_noise);
  Options options = quiet();
  options.determinism = Determinism::kStrict;
  Noisy noisy(options);
  noisy.run(12);
  EXPECT_EQ(noisy.train.stats().replayed, 0U);
  const Stats stats = noisy.train.stats();
  const Refusal* refusal = find(stats, RefusalCode::kNondeterministicOp);
  ASSERT_TRUE(refusal) << noisy.train.explain();
  EXPECT_EQ(refusal->op, "aten::erfc_");
}

TEST(NondeterministicTest, AStrictSessionReplaysWhatIsDeterministic) {
  Options options = quiet();
  options.determinism = Determinism::kStrict;
  Noisy noisy(options);
  noisy.run(12);
  EXPECT_GE(noisy.train.stats().replayed, 8U) << noisy.train.explain();
}

TEST(NondeterministicTest, AnOpThatDiffersInThePlanAloneIsNoChance) {
  // other bits each time it runs in a plan, the same ones each time in a step
  const Replaced replaced(
      [](const at::Tensor& x) { return runs_in_plan() ? with_noise(x) : at::mul(x, 0.5); });
  Noisy noisy(quiet());
  noisy.run(12);
  EXPECT_EQ(noisy.train.stats().replayed, 0U);
  const Stats stats = noisy.train.stats();
  const Refusal* refusal = find(stats, RefusalCode::kTrialDiverged);
  ASSERT_TRUE(refusal) << noisy.train.explain();
  EXPECT_EQ(refusal->op, "aten::erfc_");
  EXPECT_NE(refusal->message.find("the same ones each of 64 times"), std::string::npos)
      << refusal->message;
}

TEST(NondeterministicTest, ADifferenceBeyondTheSpreadIsNoChance) {
  const Replaced replaced(
      [](const at::Tensor& x) { return runs_in_plan() ? with_noise(x) * 1.01 : with_noise(x); });
  Noisy noisy(quiet());
  noisy.run(12);
  EXPECT_EQ(noisy.train.stats().replayed, 0U);
  const Stats stats = noisy.train.stats();
  const Refusal* refusal = find(stats, RefusalCode::kTrialDiverged);
  ASSERT_TRUE(refusal) << noisy.train.explain();
  EXPECT_NE(refusal->message.find("and from itself by"), std::string::npos) << refusal->message;
}

TEST(NondeterministicTest, AnotherOpThatDiffersBehindItIsFound) {
  const Replaced replaced(with_noise);
  const Replaced other([](const at::Tensor& x) { return x * (runs_in_plan() ? 2 : 3); }, "erfinv_");
  Session session(quiet());
  auto step = session.wrap("step", [](at::Tensor x) { return x.clone().erfc_().erfinv_().sum(); });
  for (int i = 0; i < 12; ++i) step(at::rand({8, 8}));
  EXPECT_EQ(step.stats().replayed, 0U);
  const Stats stats = step.stats();
  const Refusal* refusal = find(stats, RefusalCode::kTrialDiverged);
  ASSERT_TRUE(refusal) << step.explain();
  EXPECT_EQ(refusal->op, "aten::erfinv_");
}

TEST(NondeterministicTest, OpsThatDifferFromThemselvesAreFoundOneAfterTheOther) {
  const Replaced replaced(with_noise);
  const Replaced other(with_noise, "erfinv_");
  Session session(audited());
  auto step =
      session.wrap("step", [](at::Tensor x) { return x.clone().erfc_().erfinv_().erfc_().sum(); });
  for (int i = 0; i < 20; ++i) step(at::rand({8, 8}));
  EXPECT_EQ(step.stats().variants.at(0).nondeterministic.size(), 3U) << step.explain();
  EXPECT_GE(step.stats().audits, 10U) << step.explain();
  EXPECT_TRUE(step.stats().refusals.empty()) << step.explain();
}

TEST(NondeterministicTest, AnOpWritesInPlaceAndDiffersFromItself) {
  const Replaced replaced(with_noise);
  Session session(audited());
  at::Tensor state = at::ones({8});
  session.track("state", state);
  auto step = session.wrap("step", [&](at::Tensor x) {
    state.mul_(0.5).add_(x).erfc_();
    return state.sum();
  });
  at::Tensor expected = at::ones({8});
  for (int i = 0; i < 20; ++i) {
    step(at::full({8}, i));
    expected = expected * 0.5 + i + 1e-3;
    ASSERT_TRUE(at::allclose(state, expected, 1e-4)) << "call " << i << "\n" << step.explain();
  }
  EXPECT_EQ(step.stats().variants.at(0).nondeterministic.size(), 1U) << step.explain();
  EXPECT_GE(step.stats().audits, 10U) << step.explain();
  EXPECT_TRUE(step.stats().refusals.empty()) << step.explain();
}

TEST(NondeterministicTest, WhatBeginsToDifferFromItselfLaterIsFoundByAnAudit) {
  bool is_noisy = false;
  const Replaced replaced(
      [&](const at::Tensor& x) { return is_noisy ? with_noise(x) : at::mul(x, 0.5); });
  Noisy noisy(audited());
  noisy.run(10);
  is_noisy = true;
  noisy.run(10);
  const Stats stats = noisy.train.stats();
  EXPECT_TRUE(stats.refusals.empty()) << noisy.train.explain();
  EXPECT_GE(stats.trials, 2U) << noisy.train.explain();
  EXPECT_EQ(stats.variants.at(0).nondeterministic.size(), 1U) << noisy.train.explain();
}

TEST(NondeterministicTest, APlanThatBeginsToDifferFromItselfFailsItsAudit) {
  bool is_noisy = false;
  const Replaced replaced([&](const at::Tensor& x) {
    return is_noisy && runs_in_plan() ? with_noise(x) : at::mul(x, 0.5);
  });
  Noisy noisy(audited());
  noisy.run(10);
  is_noisy = true;
  EXPECT_THROW(noisy.run(10), Error);
  EXPECT_TRUE(find(noisy.train.stats(), RefusalCode::kAuditDiverged)) << noisy.train.explain();
}

/// Long enough that the threads run at one time on a busy machine, too.
TEST(NondeterministicTest, AccumulatingByTwoThreadsReplays) {
  const int threads = at::get_num_threads();
  at::set_num_threads(2);
  Session session(audited());
  const at::Tensor index = at::randint(0, 16, {1000000});
  auto step = session.wrap("step", [&](at::Tensor x) {
    at::Tensor sums = at::zeros({16});
    sums.index_put_({index}, x, /*accumulate=*/true);
    return at::tanh(sums / 1e4);
  });
  for (int i = 0; i < 20; ++i) step(at::rand({1000000}));
  at::set_num_threads(threads);
  EXPECT_TRUE(step.stats().refusals.empty()) << step.explain();
  EXPECT_GE(step.stats().replayed + step.stats().audits, 10U) << step.explain();
  std::cout << step.explain();
}

}  // namespace
}  // namespace steptape::tests
