#include <gtest/gtest.h>

#include <fstream>

#include "tests/session/training.h"

namespace steptape::tests {
namespace {

bool has(const Stats& stats, RefusalCode code) {
  return std::any_of(stats.refusals.begin(), stats.refusals.end(),
                     [&](const CountedRefusal& counted) { return counted.refusal.code == code; });
}

Refusal refusal(const Stats& stats, RefusalCode code) {
  for (const CountedRefusal& counted : stats.refusals) {
    if (counted.refusal.code == code) return counted.refusal;
  }
  return {};
}

/// Calls `step` twelve times; it must give `expected` each time and never replay.
template <typename Step, typename Expected>
void expect_refused(Step& step, RefusalCode code, Expected expected) {
  for (int i = 0; i < 12; ++i) {
    const at::Tensor x = at::rand({4, 4});
    EXPECT_TRUE(same_bits(step(x), expected(x)));
  }
  EXPECT_EQ(step.stats().replayed, 0U);
  EXPECT_TRUE(has(step.stats(), code)) << step.explain();
}

/// Of a type that nobody knows.
struct Unknown : torch::optim::SGD {
  using SGD::SGD;
};

TEST(RefusalsTest, AnUnknownOptimizerTrainsEagerlyAndIsNamed) {
  using UnknownTraining = Training<Unknown, torch::optim::SGDOptions>;
  UnknownTraining eager({}, torch::optim::SGDOptions(1e-3)),
      taped({}, torch::optim::SGDOptions(1e-3));
  Session session(quiet());
  session.track("model", taped.model).track("optimizer", taped.optimizer);
  auto train = session.wrap("train", [&](at::Tensor x, at::Tensor y) { return taped.step(x, y); });
  for (const Batch& batch : make_batches(12)) {
    EXPECT_TRUE(
        same_bits(eager.step(batch.images, batch.labels), train(batch.images, batch.labels)));
  }
  EXPECT_TRUE(all_same_bits(visible_state(*eager.model), visible_state(*taped.model)));
  EXPECT_EQ(train.stats().replayed, 0U);
  ASSERT_TRUE(has(train.stats(), RefusalCode::kOptimizerUnsupported)) << train.explain();
  EXPECT_NE(train.explain().find("Unknown"), std::string::npos) << train.explain();
  EXPECT_NE(train.explain().find("remedy: "), std::string::npos);
}

TEST(RefusalsTest, AnOptimizerThatNobodyTrackedIsNoticed) {
  SgdTraining eager({}, torch::optim::SGDOptions(0.1)), taped({}, torch::optim::SGDOptions(0.1));
  Session session(quiet());
  session.track("model", taped.model);
  auto train = session.wrap("train", [&](at::Tensor x, at::Tensor y) { return taped.step(x, y); });
  for (const Batch& batch : make_batches(12)) {
    EXPECT_TRUE(
        same_bits(eager.step(batch.images, batch.labels), train(batch.images, batch.labels)));
  }
  EXPECT_EQ(train.stats().replayed, 0U);
  EXPECT_TRUE(has(train.stats(), RefusalCode::kUntrackedWrite)) << train.explain();
}

TEST(RefusalsTest, AModelThatNobodyTrackedIsNoticed) {
  SgdTraining taped({}, torch::optim::SGDOptions(0.1));
  Session session(quiet());
  auto train = session.wrap("train", [&](at::Tensor x, at::Tensor y) { return taped.step(x, y); });
  for (const Batch& batch : make_batches(6)) train(batch.images, batch.labels);
  EXPECT_EQ(train.stats().replayed, 0U);
  const Refusal found = refusal(train.stats(), RefusalCode::kUntrackedWrite);
  EXPECT_NE(found.message.find("tracked"), std::string::npos) << found.text();
  EXPECT_NE(found.message.find("aten::"), std::string::npos) << found.text();
}

at::Tensor decided(const at::Tensor& x) { return x.sum().item<double>() > 2 ? x * 3 : x * 2; }

TEST(RefusalsTest, AHostReadThatDecidesIsNamed) {
  Session session(quiet());
  auto step = session.wrap("read", [](at::Tensor x) { return decided(x); });
  expect_refused(step, RefusalCode::kHostRead, decided);
}

TEST(RefusalsTest, AScalarThatVariesIsNamed) {
  Session session(quiet());
  int calls = 0;
  auto step = session.wrap("count", [&](at::Tensor x) { return x * ++calls; });
  int expected = 0;
  expect_refused(step, RefusalCode::kScalarVaries,
                 [&](const at::Tensor& x) { return x * ++expected; });
}

TEST(RefusalsTest, ABufferThatEscapesIsNamed) {
  Session session(quiet());
  std::vector<at::Tensor> kept;
  auto step = session.wrap("keep", [&](at::Tensor x) {
    kept.push_back(x + 1);
    return x * 2;
  });
  expect_refused(step, RefusalCode::kEscapedBuffer, [](const at::Tensor& x) { return x * 2; });
}

TEST(RefusalsTest, AnOutsideTensorThatChangesIsNamed) {
  Session session(quiet());
  std::vector<at::Tensor> masks;
  for (int i = 0; i < 12; ++i) masks.push_back(at::rand({4, 4}));
  std::size_t next = 0;
  auto step = session.wrap("mask", [&](at::Tensor x) { return x * masks[next++]; });
  std::size_t expected = 0;
  expect_refused(step, RefusalCode::kOutsideTensorVaries,
                 [&](const at::Tensor& x) { return x * masks[expected++]; });
}

TEST(RefusalsTest, AnOutsideTensorThatStaysReplaysAndIsFollowedInPlace) {
  Session session(quiet());
  at::Tensor mask = at::rand({4, 4});
  auto step = session.wrap("mask", [&](at::Tensor x) { return x * mask; });
  for (int i = 0; i < 12; ++i) {
    const at::Tensor x = at::rand({4, 4});
    if (i == 8) mask.fill_(0.25);
    EXPECT_TRUE(same_bits(step(x), x * mask));
  }
  EXPECT_GE(step.stats().replayed, 8U) << step.explain();
}

TEST(RefusalsTest, AResultWithAnUnconsumedGraphIsNamed) {
  Net model;
  Session session(quiet());
  session.track("model", model);
  auto step = session.wrap("forward", [&](at::Tensor x) { return model->forward(x); });
  for (int i = 0; i < 6; ++i) EXPECT_TRUE(step(at::rand({4, 64})).requires_grad());
  EXPECT_EQ(step.stats().replayed, 0U);
  EXPECT_TRUE(has(step.stats(), RefusalCode::kUnconsumedGraph)) << step.explain();
}

TEST(RefusalsTest, ASeekIsNamed) {
  Session session(quiet());
  int seed = 0;
  auto step = session.wrap("seed", [&](at::Tensor x) {
    torch::manual_seed(seed++);
    return x + at::rand({4, 4});
  });
  int expected = 0;
  expect_refused(step, RefusalCode::kGeneratorSeek, [&](const at::Tensor& x) {
    torch::manual_seed(expected++);
    return x + at::rand({4, 4});
  });
}

TEST(RefusalsTest, ASchedulerInsideTheStepIsNamed) {
  SgdTraining taped({}, torch::optim::SGDOptions(0.1));
  Session session(quiet());
  session.track("model", taped.model).track("optimizer", taped.optimizer);
  auto train = session.wrap("train", [&](at::Tensor x, at::Tensor y) {
    auto& options =
        static_cast<torch::optim::SGDOptions&>(taped.optimizer.param_groups()[0].options());
    at::Tensor loss = taped.step(x, y);
    options.lr(options.lr() * 0.9);
    return loss;
  });
  for (const Batch& batch : make_batches(6)) train(batch.images, batch.labels);
  EXPECT_EQ(train.stats().replayed, 0U);
  EXPECT_TRUE(has(train.stats(), RefusalCode::kHyperparameterChanged)) << train.explain();
}

TEST(RefusalsTest, AStepInsideAStepRunsEagerly) {
  Session session(quiet());
  auto inner = session.wrap("inner", [](at::Tensor x) { return x + 1; });
  auto outer = session.wrap("outer", [&](at::Tensor x) { return inner(x) * 2; });
  for (int i = 0; i < 8; ++i) {
    const at::Tensor x = at::rand({4});
    EXPECT_TRUE(same_bits(outer(x), (x + 1) * 2));
  }
  EXPECT_EQ(inner.stats().replayed, 0U);
  EXPECT_TRUE(has(inner.stats(), RefusalCode::kNestedStep)) << inner.explain();
  EXPECT_GE(outer.stats().replayed, 4U) << outer.explain();
}

TEST(RefusalsTest, MetaTensorsAreNamed) {
  Session session(quiet());
  auto step = session.wrap("meta", [](at::Tensor x) {
    at::Tensor ghost = at::empty({2, 2}, at::TensorOptions(at::kMeta)) + 1;
    return x + static_cast<double>(ghost.size(0));
  });
  for (int i = 0; i < 6; ++i) {
    const at::Tensor x = at::rand({4, 4});
    EXPECT_TRUE(same_bits(step(x), x + 2.0));
  }
  EXPECT_EQ(step.stats().replayed, 0U);
  EXPECT_FALSE(step.stats().refusals.empty());
}

TEST(RefusalsTest, ShapesThatNeverComeAgainAreBounded) {
  Session session(quiet());
  auto step = session.wrap("shapes", [](at::Tensor x) { return x * 2; });
  for (std::int64_t i = 0; i < 300; ++i) {
    const at::Tensor x = at::rand({std::max<std::int64_t>(1, i)});
    EXPECT_TRUE(same_bits(step(x), x * 2));
  }
  EXPECT_LE(step.stats().variants.size(), 33U);
  EXPECT_LE(step.stats().recorded, 50U);
  EXPECT_TRUE(has(step.stats(), RefusalCode::kTooManyVariants)) << step.explain();
}

TEST(RefusalsTest, ShapesThatComeAgainTakeTheirPlace) {
  Session session(quiet());
  auto step = session.wrap("shapes", [](at::Tensor x) { return x * 2; });
  for (std::int64_t i = 0; i < 2000; ++i) {
    const at::Tensor x = at::rand({i < 300 ? std::max<std::int64_t>(1, i) : 500 + i % 5});
    EXPECT_TRUE(same_bits(step(x), x * 2));
  }
  EXPECT_GE(step.stats().replayed, 500U) << step.explain();
}

TEST(RefusalsTest, WhereFewPlansAreKeptTheOneUsedLongestAgoLeaves) {
  Options options = quiet();
  options.max_variants = 3;
  Session session(options);
  auto step = session.wrap("shapes", [](at::Tensor x) { return x * 2; });
  for (std::int64_t size = 1; size < 9; ++size) {
    for (int i = 0; i < 20; ++i) {
      const at::Tensor x = at::rand({size});
      EXPECT_TRUE(same_bits(step(x), x * 2));
    }
  }
  EXPECT_EQ(step.stats().variants.size(), 3U);
  EXPECT_EQ(step.stats().replayed, 8U * 18 - 1) << step.explain();
  EXPECT_FALSE(has(step.stats(), RefusalCode::kTooManyVariants)) << step.explain();
}

TEST(RefusalsTest, PlansThatDriveEachOtherOutArePausedFor) {
  Options options = quiet();
  options.max_variants = 3;
  Session session(options);
  auto step = session.wrap("shapes", [](at::Tensor x) { return x * 2; });
  for (std::int64_t i = 0; i < 1000; ++i) {
    const at::Tensor x = at::rand({1 + i % 4});
    EXPECT_TRUE(same_bits(step(x), x * 2));
  }
  EXPECT_LE(step.stats().recorded, 5 + step.stats().replayed / 16) << step.explain();
  EXPECT_GE(step.stats().replayed, 600U);
  EXPECT_TRUE(has(step.stats(), RefusalCode::kTooManyVariants)) << step.explain();
}

TEST(RefusalsTest, AShapeThatIsRefusedIsPausedAlone) {
  Session session(quiet());
  std::vector<at::Tensor> kept;
  auto step = session.wrap("shapes", [&](at::Tensor x) {
    if (x.size(0) == 4) kept.push_back(x + 1);
    return x * 2;
  });
  for (int i = 0; i < 40; ++i) {
    for (const std::int64_t size : {4, 5, 6}) {
      const at::Tensor x = at::rand({size});
      EXPECT_TRUE(same_bits(step(x), x * 2));
    }
  }
  EXPECT_TRUE(has(step.stats(), RefusalCode::kEscapedBuffer)) << step.explain();
  EXPECT_GE(step.stats().replayed, 70U) << step.explain();
  EXPECT_LE(step.stats().recorded, 6U);
}

TEST(RefusalsTest, ManyShapesThatAreRefusedAreBounded) {
  Session session(quiet());
  std::vector<at::Tensor> kept;
  auto step = session.wrap("shapes", [&](at::Tensor x) {
    kept.push_back(x + 1);
    return x * 2;
  });
  for (std::int64_t size = 1; size <= 300; ++size) step(at::rand({size}));
  EXPECT_LE(step.stats().recorded, 24U) << step.explain();
}

TEST(RefusalsTest, OnRequestARefusalThrowsAtTheNextCall) {
  Options options = quiet();
  options.on_refusal = OnRefusal::kThrow;
  Session session(options);
  std::vector<at::Tensor> kept;
  auto step = session.wrap("keep", [&](at::Tensor x) {
    kept.push_back(x + 1);
    return x * 2;
  });
  step(at::rand({4}));
  step(at::rand({4}));
  const std::size_t before = kept.size();
  try {
    step(at::rand({4}));
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
    EXPECT_NE(std::string(error.what()).find("escaped_buffer"), std::string::npos) << error.what();
  }
  EXPECT_EQ(kept.size(), before);
}

TEST(RefusalsTest, ATraceThatCannotBeWrittenDoesNotStopTheTraining) {
  Options options = quiet();
  options.trace = "/proc/no/such/folder/x.tape";
  Session session(options);
  auto step = session.wrap("double", [](at::Tensor x) { return x * 2; });
  for (int i = 0; i < 6; ++i) step(at::rand({4}));
  EXPECT_EQ(step.stats().replayed, 3U) << step.explain();
  EXPECT_FALSE(step.stats().trace_problem.empty());
}

}  // namespace
}  // namespace steptape::tests
