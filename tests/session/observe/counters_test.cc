#include <gtest/gtest.h>
#include <steptape/steptape.h>

#include <atomic>
#include <optional>
#include <thread>

#include "tests/session/training.h"

namespace steptape::tests {
namespace {

at::Tensor twice(at::Tensor x) { return (x * 2).sum(); }

TEST(CountersTest, CountEachCallByItsOutcome) {
  const Counters before = counters();
  Session session(quiet());
  auto step = session.wrap("twice", twice);
  for (int i = 0; i < 6; ++i) step(at::rand({4}));
  step(at::rand({3}));
  const Counters now = counters();
  const Stats stats = step.stats();
  EXPECT_EQ(now.steps - before.steps, 7U);
  EXPECT_EQ(now.recorded - before.recorded, stats.recorded);
  EXPECT_EQ(now.trials - before.trials, 1U);
  EXPECT_EQ(now.replayed - before.replayed, stats.replayed);
  EXPECT_EQ(now.eager - before.eager, stats.eager);
  EXPECT_EQ(now.audits - before.audits, 0U);
  EXPECT_EQ(now.plans - before.plans, 2U);
}

TEST(CountersTest, CountFallbacksByTheKindOfTheGuard) {
  Counters before = counters();
  Session session(quiet());
  auto step = session.wrap("twice", twice);
  for (int i = 0; i < 6; ++i) step(at::rand({4}));
  step(at::rand({3}));
  const GuardKind kind = step.stats().last_verdict.kind;
  EXPECT_EQ(counters().fallbacks[kind] - before.fallbacks[kind], 1U);
}

TEST(CountersTest, CountRefusalsAndDivergences) {
  Counters before = counters();
  Session session(quiet());
  double hidden = 2;
  auto step = session.wrap("scaled", [&](at::Tensor x) { return (x * hidden).sum(); });
  step(at::rand({4}));
  step(at::rand({4}));
  hidden = 3;
  step(at::rand({4}));
  Counters now = counters();
  EXPECT_EQ(now.divergences - before.divergences, 1U) << step.explain();
  EXPECT_EQ(
      now.refusals[RefusalCode::kTrialDiverged] - before.refusals[RefusalCode::kTrialDiverged], 1U);
}

TEST(CountersTest, KeepWhatSessionsDidThatEnded) {
  const Counters before = counters();
  {
    Session session(quiet());
    auto step = session.wrap("twice", twice);
    for (int i = 0; i < 5; ++i) step(at::rand({4}));
  }
  EXPECT_EQ(counters().steps - before.steps, 5U);
  EXPECT_EQ(counters().replayed - before.replayed, 2U);
}

TEST(CountersTest, AreReadWhileOtherThreadsTrain) {
  const Counters before = counters();
  const auto train = [] {
    Session session(quiet());
    auto step = session.wrap("twice", twice);
    for (int i = 0; i < 50; ++i) step(at::ones({4}));
  };
  std::thread first(train), second(train);
  std::uint64_t newest = before.steps;
  for (int i = 0; i < 100; ++i) {
    const std::uint64_t now = counters().steps;
    EXPECT_GE(now, newest);
    newest = now;
  }
  first.join();
  second.join();
  EXPECT_EQ(counters().steps - before.steps, 100U);
}

TEST(CountersTest, PrintAsPrometheusReadsThem) {
  Counters counters;
  counters.recorded = 3;
  counters.trials = 1;
  counters.audits = 2;
  counters.replayed = 95;
  counters.eager = 4;
  counters.fallbacks = {{GuardKind::kShape, 12}, {GuardKind::kTraining, 1}};
  counters.refusals = {{RefusalCode::kHostRead, 7}};
  counters.plans = 2;
  counters.divergences = 1;
  counters.rebinds = 5;
  counters.log_lines_lost = 6;
  EXPECT_EQ(prometheus(counters),
            "# HELP steptape_calls_total Calls of wrapped steps by outcome.\n"
            "# TYPE steptape_calls_total counter\n"
            "steptape_calls_total{outcome=\"recorded\"} 3\n"
            "steptape_calls_total{outcome=\"trial\"} 1\n"
            "steptape_calls_total{outcome=\"audit\"} 2\n"
            "steptape_calls_total{outcome=\"replayed\"} 95\n"
            "steptape_calls_total{outcome=\"eager\"} 4\n"
            "# HELP steptape_fallbacks_total Calls that no plan fitted, by the guard that failed.\n"
            "# TYPE steptape_fallbacks_total counter\n"
            "steptape_fallbacks_total{kind=\"shape\"} 12\n"
            "steptape_fallbacks_total{kind=\"training\"} 1\n"
            "# HELP steptape_refusals_total Calls that a refusal kept from being replayed, by "
            "code.\n"
            "# TYPE steptape_refusals_total counter\n"
            "steptape_refusals_total{code=\"host_read\"} 7\n"
            "# HELP steptape_plans_total Plans made.\n"
            "# TYPE steptape_plans_total counter\n"
            "steptape_plans_total 2\n"
            "# HELP steptape_divergences_total Trials and audits that found other bits.\n"
            "# TYPE steptape_divergences_total counter\n"
            "steptape_divergences_total 1\n"
            "# HELP steptape_rebinds_total Plans that took up a moved storage.\n"
            "# TYPE steptape_rebinds_total counter\n"
            "steptape_rebinds_total 5\n"
            "# HELP steptape_log_lines_lost_total Lines of the log that could not be written.\n"
            "# TYPE steptape_log_lines_lost_total counter\n"
            "steptape_log_lines_lost_total 6\n");
}

}  // namespace
}  // namespace steptape::tests
