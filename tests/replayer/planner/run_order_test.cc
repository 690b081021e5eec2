#include "replayer/planner/analysis/run_order.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "replayer/planner/numbers/bindings.h"
#include "tests/replayer/recorded_steps.h"
#include "trace/numbers.h"

namespace steptape::tests {
namespace {

using replayer::places_of;
using testing::ElementsAre;

std::vector<at::Tensor> inputs() {
  return {at::ones({4, 8}), at::full({}, 3.0), at::full({}, 5.0)};
}

/// The places of the ops of a body that returns nothing, over data and two counts; and that a plan
/// of it leaves in all of them what the body leaves.
std::vector<std::int64_t> places(const std::function<void(const std::vector<at::Tensor>&)>& body) {
  const StepBody step = [&](const std::vector<at::Tensor>& x) {
    body(x);
    return std::vector<at::Tensor>();
  };
  const auto recording = recorded(step, inputs());
  const auto executor =
      replayer::cpu::make_executor(replayer::cpu::plan(recording), default_generator());
  const std::vector<at::Tensor> found = inputs(), expected = inputs();
  run(*executor, found);
  body(expected);
  for (std::size_t i = 0; i < found.size(); ++i) EXPECT_TRUE(same_bits(found[i], expected[i])) << i;
  return places_of(*recording);
}

TEST(RunOrderTest, CountsComeFirstAndThenWhatReadsThem) {
  EXPECT_THAT(places([](const auto& x) {
                x[0].mul_(2);
                x[1].add_(1);
                x[1].item();
                x[0].add_(1);
                x[2].add_(1);
                x[2].item();
              }),
              ElementsAre(0, -2, -1, 3, -2, -1));
}

TEST(RunOrderTest, WhatIsReadAgainIsReadInTheSameOrder) {
  EXPECT_THAT(places([](const auto& x) {
                x[0].mul_(2);
                x[1].item();
                x[1].add_(1);
                x[1].item();
                x[1].mul_(x[2]);
                x[2].add_(1);
                x[1].item();
              }),
              ElementsAre(0, -5, -4, -3, -2, -2, -1));
}

TEST(RunOrderTest, ACountThatWasUsedBeforeKeepsItsPlace) {
  EXPECT_THAT(places([](const auto& x) {
                x[0].mul_(x[1]);
                x[1].add_(1);
                x[1].item();
                x[2].copy_(x[1]);
                x[2].item();
              }),
              ElementsAre(0, 1, 1, 3, 3));
}

TEST(RunOrderTest, LargerMemoryIsNoCount) {
  EXPECT_THAT(places([](const auto& x) {
                x[0].mul_(2);
                x[0].add_(1);
                x[0][0][0].item();
                x[1].add_(x[0][1][1]);
                x[1].item();
              }),
              ElementsAre(0, 1, 2, 3, 1, 5, 6, 7, 7));
}

TEST(RunOrderTest, ACountAfterAllReadsKeepsItsPlace) {
  EXPECT_THAT(places([](const auto& x) {
                x[2].item();
                x[2].add_(1);
                x[1].add_(1);
              }),
              ElementsAre(-1, 1, 2));
}

TEST(RunOrderTest, ACountByWhatIsReadLaterKeepsItsPlace) {
  const StepBody body = [](const std::vector<at::Tensor>& x) {
    x[0].mul_(2);
    const at::Scalar read = x[0][0][0].item();
    x[1].add_(read);
    x[1].item();
    return std::vector<at::Tensor>();
  };
  trace::Recording recording = *recorded(body, inputs());
  ASSERT_EQ(recording.ops.size(), 6U);
  EXPECT_THAT(places_of(recording), ElementsAre(0, 1, 2, 0, -2, -1));

  replayer::Bindings bindings(recording);
  const trace::Index leaf = bindings.leaf(trace::LeafKind::kHostRead, trace::read_path(3));
  bindings.bind({4, 1, trace::kNone, trace::kNone, trace::kNone}, trace::leaf(leaf));
  EXPECT_THAT(places_of(recording), ElementsAre(0, 1, 2, 0, 4, 4));
}

}  // namespace
}  // namespace steptape::tests
