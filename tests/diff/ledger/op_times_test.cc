#include <gmock/gmock.h>

#include "diff/diff.h"

namespace steptape::diff {
namespace {

using testing::ElementsAre;
using testing::Field;
using testing::SizeIs;

/// Two ops of model.a, which is called twice, one of model.b, and one that no module issued.
trace::Recording recording(std::vector<std::uint32_t> nanoseconds) {
  trace::Recording recording;
  recording.status = trace::Status::kTrusted;
  recording.operators.push_back({"aten::relu", "", "aten::relu(Tensor self) -> Tensor"});
  recording.modules = {{"model.a", "Layer", true, {}, {}}, {"model.b", "Layer", true, {}, {}}};
  for (const trace::Index module : {0U, 0U, 1U, trace::kNone}) {
    trace::Op op;
    op.op = 0;
    op.module = module;
    op.call = module == trace::kNone ? 0 : 1;
    recording.ops.push_back(op);
  }
  recording.ops[1].call = 2;
  recording.ops[1].phase = trace::Phase::kBackward;
  recording.op_ns = std::move(nanoseconds);
  return recording;
}

/// Recordings in which model.a takes `of_a` nanoseconds more, each one more than the one before.
trace::Step step(std::uint32_t of_a, std::uint32_t recordings) {
  trace::Step step{"train", "", {}};
  for (std::uint32_t i = 0; i < recordings; ++i) {
    step.recordings.push_back(recording({5000 + of_a + i, 1000, 3000, 2000}));
  }
  return step;
}

OpTimeDifference of_medians(std::uint64_t a, std::uint64_t b, std::uint64_t recordings) {
  const auto times = [&](std::uint64_t median) {
    return Times{recordings,   median - 900, median - 100, median,
                 median + 100, median + 200, median + 900};
  };
  return {"", times(a), times(b)};
}

TEST(OpTimesTest, EachNumberIsOneThatWasMeasured) {
  EXPECT_EQ(times_of({8, 1, 7, 2, 6, 3, 5, 4}), (Times{8, 1, 2, 4, 6, 7, 8}));
}

TEST(OpTimesTest, AMedianWithinTheOthersMiddleHalfAndAMicrosecondIsNoDifference) {
  EXPECT_FALSE(of_medians(10'000, 11'100, 8).differs());
  EXPECT_TRUE(of_medians(10'000, 11'101, 8).differs());
  EXPECT_TRUE(of_medians(11'101, 10'000, 8).differs());
}

TEST(OpTimesTest, BelowEightRecordingsAllTimesAreTheNoise) {
  EXPECT_FALSE(of_medians(10'000, 11'900, 7).differs());
  EXPECT_TRUE(of_medians(10'000, 11'901, 7).differs());
  OpTimeDifference mixed = of_medians(10'000, 11'101, 8);
  mixed.b.count = 7;
  EXPECT_FALSE(mixed.differs());
}

TEST(OpTimesTest, BothMediansLieOutsideTheOthersBand) {
  OpTimeDifference found = of_medians(10'000, 20'000, 8);
  EXPECT_TRUE(found.differs());
  found.b.lower_quartile = 10'000;
  EXPECT_FALSE(found.differs());
}

TEST(OpTimesTest, FewerThanThreeRecordingsCannotBeCompared) {
  EXPECT_FALSE(of_medians(10'000, 90'000, 2).is_comparable());
  EXPECT_FALSE(of_medians(10'000, 90'000, 2).differs());
  EXPECT_TRUE(of_medians(10'000, 90'000, 3).differs());
}

TEST(OpTimesTest, OpsCountByModuleWhateverTheCallAndPhase) {
  const auto found = op_time_differences(step(0, 3), step(40'000, 3));
  ASSERT_TRUE(found);
  EXPECT_EQ(found->step.a, (Times{3, 11'000, 11'000, 11'001, 11'001, 11'001, 11'002}));
  ASSERT_THAT(found->modules, SizeIs(3));
  EXPECT_EQ(found->modules[0].module, "model.a");
  EXPECT_EQ(found->modules[0].a.median, 6'001u);
  EXPECT_EQ(found->modules[0].b.median, 46'001u);
  EXPECT_EQ(found->modules[1].a.median, 2'000u) << "of no module";
  EXPECT_EQ(found->modules[2].a.median, 3'000u);
  EXPECT_EQ(found->differing(), 2u) << "model.a, and all ops together";
}

TEST(OpTimesTest, WhatDiffersComesFirstThenWhatIsFurthestApart) {
  trace::Step a = step(0, 3);
  trace::Step b = a;
  a.recordings[0].op_ns[3] = 90'000;  // no module: far apart at times, and noisy
  a.recordings[1].op_ns[3] = 90'000;
  for (trace::Recording& recording : b.recordings) recording.op_ns[2] += 5'000;
  const auto found = op_time_differences(a, b);
  ASSERT_TRUE(found);
  EXPECT_THAT(found->modules, ElementsAre(Field(&OpTimeDifference::module, "model.b"),
                                          Field(&OpTimeDifference::module, ""),
                                          Field(&OpTimeDifference::module, "model.a")));
  EXPECT_FALSE(found->modules[1].differs());
}

TEST(OpTimesTest, WarmUpsAndRecordingsWithoutTimesAreLeftOut) {
  trace::Step other = step(0, 3);
  other.recordings.push_back(recording({}));
  other.recordings.push_back(recording({900'000, 900'000, 900'000, 900'000}));
  other.recordings.back().status = trace::Status::kWarmUp;
  const auto found = op_time_differences(step(0, 3), other);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->step.b, found->step.a);
}

TEST(OpTimesTest, WhereOneSideHasNoTimesNothingIsCompared) {
  trace::Step warm_up = step(0, 3);
  for (trace::Recording& recording : warm_up.recordings) recording.status = trace::Status::kWarmUp;
  EXPECT_FALSE(op_time_differences(step(0, 3), warm_up));
  EXPECT_FALSE(op_time_differences(step(0, 0), step(0, 3)));
}

TEST(OpTimesTest, AModuleOfOneSideHasNoPartner) {
  trace::Step other = step(0, 3);
  for (trace::Recording& recording : other.recordings) recording.modules[0].path = "model.c";
  const auto found = op_time_differences(step(0, 3), other);
  ASSERT_TRUE(found);
  EXPECT_THAT(found->modules, SizeIs(2));
}

TEST(OpTimesTest, ModulesOfOnePathCountAsOne) {
  trace::Step other = step(0, 3);
  for (trace::Recording& recording : other.recordings) recording.modules[1].path = "model.a";
  const auto found = op_time_differences(other, other);
  ASSERT_TRUE(found);
  ASSERT_THAT(found->modules, SizeIs(2));
  EXPECT_EQ(found->modules[1].module, "model.a");
  EXPECT_EQ(found->modules[1].a.median, 9'001u);
  EXPECT_EQ(found->modules[1].a.count, 3u);
}

TEST(OpTimesTest, ADiffOfTracesCountsThemAsTimeAlone) {
  trace::Trace a;
  trace::Trace b;
  a.steps.push_back(step(0, 3));
  b.steps.push_back(step(40'000, 3));
  const Diff found = compare(a, b);
  for (const Section section : sections()) {
    EXPECT_EQ(found.count(section), section == Section::kTime ? 2u : 0u) << name_of(section);
  }
  EXPECT_EQ(found.steps[0].op_times_only_in, "");
  for (trace::Recording& recording : a.steps[0].recordings) recording.op_ns.clear();
  EXPECT_EQ(compare(a, b).count(Section::kTime), 0u);
  EXPECT_EQ(compare(a, b).steps[0].op_times_only_in, "b");
  EXPECT_EQ(compare(b, a).steps[0].op_times_only_in, "a");
  EXPECT_EQ(compare(a, a).steps[0].op_times_only_in, "");
}

}  // namespace
}  // namespace steptape::diff
