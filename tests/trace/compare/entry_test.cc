#include <gtest/gtest.h>

#include "tests/trace/samples.h"
#include "trace/compare/compare.h"

namespace steptape::trace {
namespace {

TEST(SameEntryTest, EqualRecordingsWereEnteredInTheSameWay) {
  EXPECT_TRUE(same_entry(test::train_recording(), test::train_recording()));
}

TEST(SameEntryTest, WhatTheStepDidDoesNotMatter) {
  Recording other = test::train_recording();
  other.ops.pop_back();
  EXPECT_TRUE(same_entry(test::train_recording(), other));
}

TEST(SameEntryTest, AnotherShapeIsAnotherEntry) {
  Recording other = test::train_recording();
  const TensorId input = std::get<TensorRef>(other.inputs.at(0).value.data).id;
  other.tensors[input].sizes.at(0) += 1;
  EXPECT_FALSE(same_entry(test::train_recording(), other));
}

TEST(SameEntryTest, AnotherTrainingFlagIsAnotherEntry) {
  Recording other = test::train_recording();
  other.modules.at(0).training = !other.modules.at(0).training;
  EXPECT_FALSE(same_entry(test::train_recording(), other));
}

TEST(SameEntryTest, AnotherHyperparameterIsAnotherEntry) {
  Recording other = test::train_recording();
  other.optimizers.at(0).groups.at(0).hyperparameters.at(0).value = {Real{42}};
  EXPECT_FALSE(same_entry(test::train_recording(), other));
}

TEST(SameEntryTest, AGradientThatIsNoneIsAnotherEntry) {
  Recording other = test::train_recording();
  other.tracked.at(0).tensor = kNoTensor;
  EXPECT_FALSE(same_entry(test::train_recording(), other));
}

}  // namespace
}  // namespace steptape::trace
