#include "trace/compare/guard_differences.h"

#include <gmock/gmock.h>

#include "tests/trace/samples.h"

namespace steptape::trace {
namespace {

constexpr std::size_t kAll = 1000;

/// What tells the changed sample from the sample.
template <typename Change>
std::string difference(Recording recording, Change&& change) {
  Recording other = recording;
  change(other);
  return text_of(guard_differences(recording, other), kAll);
}

TEST(GuardDifferencesTest, EqualRecordingsDifferInNothing) {
  EXPECT_EQ(difference(test::train_recording(), [](Recording&) {}),
            "nothing that a recording holds");
}

TEST(GuardDifferencesTest, AnotherSizeIsOneDifference) {
  const auto differences = guard_differences(test::train_recording(), [] {
    Recording other = test::train_recording();
    other.tensors[1].sizes[0] = 17;
    return other;
  }());
  ASSERT_EQ(differences.size(), 1u);
  EXPECT_EQ(differences[0], (GuardDifference{{"inputs[0].size(0)", "2", "17"}, GuardKind::kShape}));
}

TEST(GuardDifferencesTest, OtherDimensionsHideTheSizesThatOneSideLacks) {
  EXPECT_EQ(difference(test::train_recording(),
                       [](Recording& other) {
                         other.tensors[1].sizes.push_back(1);
                         other.tensors[1].strides.push_back(1);
                       }),
            "inputs[0].dim 2 → 3");
}

TEST(GuardDifferencesTest, AGradientThatAppearsHidesItsGeometry) {
  EXPECT_EQ(
      difference(test::train_recording(), [](Recording& other) { other.tracked[1].tensor = 4; }),
      "model.fc1.weight.grad None → defined");
}

TEST(GuardDifferencesTest, SeveralStandInTheOrderOfTheGuards) {
  EXPECT_EQ(difference(test::train_recording(),
                       [](Recording& other) {
                         other.ambient[0].value = "off";
                         other.modules[0].training = false;
                         other.modules[1].options[0].value = {std::int64_t{5}};
                       }),
            "ambient.grad_mode on → off, model.training true → false, model.fc1.in_features 2 → 5");
}

TEST(GuardDifferencesTest, AHeldHyperparameterDiffersAndAFollowedOneDoesNot) {
  const auto other_rate = [](Recording& other) {
    other.optimizers[0].groups[0].hyperparameters[0].value = {Real{0.5}};
  };
  EXPECT_EQ(difference(test::train_recording(), other_rate),
            "optimizer.param_groups[0].lr 0.1 → 0.5");
  EXPECT_EQ(difference(test::numbers_trace().steps[0].recordings[0], other_rate),
            "nothing that a recording holds");
}

TEST(GuardDifferencesTest, AFollowedNumberOfAnotherKindDiffers) {
  EXPECT_EQ(difference(test::numbers_trace().steps[0].recordings[0],
                       [](Recording& other) { other.inputs[1].value = {Real{0.5}}; }),
            "inputs[1] 3 → 0.5");
}

TEST(GuardDifferencesTest, AnObjectOfOneSideAloneIsToldOnce) {
  const auto add = [](Recording& other) {
    other.tracked.push_back({"hidden", Role::kCarried, 2, false});
  };
  EXPECT_EQ(difference(test::train_recording(), add), "hidden absent → alive");
  Recording other = test::train_recording();
  add(other);
  EXPECT_EQ(text_of(guard_differences(other, test::train_recording()), kAll),
            "hidden alive → absent");
}

TEST(GuardDifferencesTest, PredicatesOfOneFormulaAreComparedOneByOne) {
  Recording recording = test::numbers_trace().steps[0].recordings[0];
  recording.predicates.push_back(recording.predicates[0]);
  EXPECT_EQ(difference(recording, [](Recording& other) { other.predicates[2].is_nonzero = false; }),
            "tau not zero → zero");
}

TEST(GuardDifferencesTest, MoreThanAskedForAreCounted) {
  Recording other = test::train_recording();
  other.tensors[1].sizes = {5, 6};
  other.tensors[1].strides = {7, 8};
  const auto differences = guard_differences(test::train_recording(), other);
  EXPECT_EQ(text_of(differences, 1), "inputs[0].size(0) 2 → 5 and 3 more");
  EXPECT_EQ(text_of(differences, 0), "inputs[0].size(0) 2 → 5 and 3 more");
}

}  // namespace
}  // namespace steptape::trace
