#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <steptape/steptape.h>

#include "session/observe/account.h"
#include "session/observe/journal.h"
#include "tests/session/training.h"

namespace steptape::tests {
namespace {

using session::Fallbacks;

Verdict wrong_size(const std::string& path, const std::string& found) {
  return {path, "64", found, GuardKind::kShape};
}

TEST(FallbacksTest, CountsByGuardAndKeepsTheNewestValues) {
  Fallbacks fallbacks;
  fallbacks.count(wrong_size("inputs[0].size(0)", "17"), 1);
  fallbacks.count(wrong_size("inputs[1].size(0)", "17"), 2);
  fallbacks.count(wrong_size("inputs[0].size(0)", "18"), 5);
  EXPECT_EQ(fallbacks.total(), 3U);
  EXPECT_THAT(fallbacks.by_frequency(),
              ::testing::ElementsAre(CountedVerdict{wrong_size("inputs[0].size(0)", "18"), 2, 5},
                                     CountedVerdict{wrong_size("inputs[1].size(0)", "17"), 1, 2}));
}

TEST(FallbacksTest, TellsGuardsOfOnePathApartByKind) {
  Fallbacks fallbacks;
  fallbacks.count({"inputs[0]", "a tensor", "undefined", GuardKind::kPresence}, 0);
  fallbacks.count({"inputs[0]", "a plain tensor", "sparse", GuardKind::kTensorKind}, 0);
  EXPECT_EQ(fallbacks.by_frequency().size(), 2U);
}

TEST(FallbacksTest, EverNewPathsTakeNoMoreThanSixtyFourEntries) {
  Fallbacks fallbacks;
  fallbacks.count(wrong_size("often", "1"), 0);
  for (int i = 0; i < 1000; ++i) {
    if (i % 50 == 0) fallbacks.count(wrong_size("often", "1"), 0);
    fallbacks.count(wrong_size("path" + std::to_string(i), "1"), 0);
  }
  const std::vector<CountedVerdict> entries = fallbacks.by_frequency();
  ASSERT_EQ(entries.size(), 64U);
  EXPECT_EQ(entries[0].verdict.path, "often");
  EXPECT_EQ(entries[0].times, 21U);
  EXPECT_EQ(entries[1].verdict.path, "path999");
  EXPECT_EQ(fallbacks.total(), 1021U);
}

TEST(FallbacksTest, SayWhenTheGuardLastHeld) {
  const Verdict verdict = wrong_size("inputs[0].size(0)", "17");
  EXPECT_EQ(session::text_of(verdict, 0), "shape: inputs[0].size(0): 64 → 17 (never held)");
  EXPECT_EQ(session::text_of(verdict, 1),
            "shape: inputs[0].size(0): 64 → 17 (held until 1 call ago)");
  EXPECT_EQ(session::text_of(verdict, 3),
            "shape: inputs[0].size(0): 64 → 17 (held until 3 calls ago)");
}

TEST(ExplainTest, ListsFallbacksBelowThePlans) {
  Stats stats;
  stats.steps = 20;
  stats.eager = 12;
  stats.replayed = 8;
  PlanStats plan;
  plan.number = 3;
  plan.ops = 6;
  plan.calls = 4;
  plan.prepared = 2;
  plan.stages = 3;
  plan.unprepared = {{"aten::convolution: its results are the user's", 2},
                     {"aten::bernoulli_.float: no kernel for this operator", 1}};
  plan.plan_us = 100;
  plan.replays = 8;
  stats.variants = {plan};
  stats.fell_back = 13;
  stats.fallbacks = {{wrong_size("inputs[0].size(0)", "17"), 12, 3},
                     {{"model.training", "on", "off", GuardKind::kTraining}, 1, 0}};
  stats.last_verdict = wrong_size("inputs[0].size(0)", "17");
  stats.last_verdicts = {{3, stats.last_verdict, 3}};
  EXPECT_EQ(session::explain("train", "train.cc:41", stats),
            "step \"train\" (train.cc:41): 20 calls: 0 recorded, 0 trials, 0 audits, 8 replayed, "
            "12 eager\n"
            "  variant 3: 8 replays of 6 ops in 4 calls, 2 by kernels, in 3 passes, arena 0 of 0 "
            "bytes, planned in 100 us\n"
            "    by the dispatcher: 2× aten::convolution, aten::bernoulli_.float\n"
            "  fell back 12×: shape: inputs[0].size(0): 64 → 17 (held until 3 calls ago)\n"
            "      remedy: Pad inputs to few shapes, pass changing numbers as tensors, or raise "
            "Options::max_variants\n"
            "  fell back 1×: training: model.training: on → off (never held)\n"
            "  last guard that failed: inputs[0].size(0): 64 → 17\n");
}

TEST(ExplainTest, SaysOfEachVariantWhyItDidNotFit) {
  Stats stats;
  stats.last_verdict = {"inputs[0].size(0)", "32", "17", GuardKind::kShape};
  stats.last_verdicts = {{0, wrong_size("inputs[0].size(0)", "17"), 2}, {1, stats.last_verdict, 1}};
  EXPECT_THAT(session::explain("train", "train.cc:41", stats),
              ::testing::EndsWith("  last guards that failed: "
                                  "variant 0: shape: inputs[0].size(0): 64 → 17 (held until 2 "
                                  "calls ago); "
                                  "variant 1: shape: inputs[0].size(0): 32 → 17 (held until 1 "
                                  "call ago)\n"));
}

/// A step over one input, called with sizes that a test chooses.
class FallingBackTest : public ::testing::Test {
 protected:
  void call(std::int64_t size, int times = 1) {
    for (int i = 0; i < times; ++i) step_(at::rand({size}));
  }

  Session session_{quiet()};
  Step<at::Tensor(at::Tensor)> step_ =
      session_.wrap("twice", [](at::Tensor x) { return (x * 2).sum(); });
};

TEST_F(FallingBackTest, ACallThatNoPlanFitsIsCountedWithTheGuardThatFailed) {
  call(4, 6);
  call(3);
  const Stats stats = step_.stats();
  EXPECT_EQ(stats.fell_back, 1U);
  ASSERT_EQ(stats.fallbacks.size(), 1U) << step_.explain();
  EXPECT_EQ(stats.fallbacks[0].verdict, stats.last_verdict);
  EXPECT_EQ(stats.fallbacks[0].verdict.text(), "inputs[0].size(0): 4 → 3");
  EXPECT_EQ(stats.fallbacks[0].times, 1U);
  EXPECT_EQ(stats.fallbacks[0].last_held, 1U);
}

TEST_F(FallingBackTest, ACallBeforeTheFirstPlanFallsBackFromNothing) {
  call(4, 2);
  EXPECT_EQ(step_.stats().fell_back, 0U);
}

TEST_F(FallingBackTest, ACallThatAnotherVariantServesIsNotCounted) {
  call(4, 6);
  call(3, 4);
  EXPECT_EQ(step_.stats().variants.size(), 2U) << step_.explain();
  const std::uint64_t before = step_.stats().fell_back;
  const std::uint64_t replayed = step_.stats().replayed;
  call(4);
  call(3);
  EXPECT_EQ(step_.stats().replayed, replayed + 2);
  EXPECT_EQ(step_.stats().fell_back, before);
}

TEST_F(FallingBackTest, TheNewestFallbackSaysOfEachVariantWhyAndSinceWhen) {
  call(4, 6);
  call(3, 4);
  call(4, 2);
  call(5);
  const std::vector<VariantVerdict> verdicts = step_.stats().last_verdicts;
  ASSERT_EQ(verdicts.size(), 2U) << step_.explain();
  EXPECT_EQ(verdicts[0].variant, 0U);
  EXPECT_EQ(verdicts[0].verdict.text(), "inputs[0].size(0): 4 → 5");
  EXPECT_EQ(verdicts[0].last_held, 1U);
  EXPECT_EQ(verdicts[1].variant, 1U);
  EXPECT_EQ(verdicts[1].verdict.text(), "inputs[0].size(0): 3 → 5");
  EXPECT_EQ(verdicts[1].last_held, 3U);
}

TEST_F(FallingBackTest, TheGuardOfThePlanThatWasInUseLastIsCounted) {
  call(4, 6);
  call(3, 4);
  call(4);
  call(5);
  ASSERT_EQ(step_.stats().last_verdicts.size(), 2U) << step_.explain();
  const CountedVerdict newest = step_.stats().fallbacks[0];
  EXPECT_EQ(newest.verdict.text(), "inputs[0].size(0): 4 → 5");
  EXPECT_EQ(newest.last_held, 1U);
}

TEST_F(FallingBackTest, APlanThatNeverRanHasNeverHeld) {
  call(4, 2);
  call(3);
  ASSERT_EQ(step_.stats().fallbacks.size(), 1U);
  EXPECT_EQ(step_.stats().fallbacks[0].last_held, 0U);
}

TEST_F(FallingBackTest, AVariantKeepsItsNumberWhenOthersAreDropped) {
  call(4, 6);
  session_.invalidate("test");
  call(4, 6);
  ASSERT_EQ(step_.stats().variants.size(), 1U);
  EXPECT_EQ(step_.stats().variants[0].number, 1U);
}

TEST(FallingBackInMidRunTest, ARunThatReadAnotherValueIsAMismatchOfItsOwnKind) {
  Session session(quiet());
  auto step = session.wrap("branches", [](at::Tensor x) {
    return x.sum().item<float>() > 0 ? (x * 2).sum() : (x * 3).sum();
  });
  for (int i = 0; i < 6; ++i) step(at::ones({4}));
  step(-at::ones({4}));
  const Stats stats = step.stats();
  ASSERT_EQ(stats.fallbacks.size(), 1U) << step.explain();
  EXPECT_EQ(stats.fallbacks[0].verdict.kind, GuardKind::kHostRead);
  EXPECT_EQ(stats.fallbacks[0].verdict.path, "op 1 `aten::_local_scalar_dense` read by the host");
  EXPECT_EQ(stats.fallbacks[0].last_held, 1U);
}

}  // namespace
}  // namespace steptape::tests
