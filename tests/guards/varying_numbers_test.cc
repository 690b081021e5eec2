#include "guards/varying_numbers.h"

#include <gtest/gtest.h>

#include <array>
#include <limits>

namespace steptape::guards {
namespace {

class VaryingNumbersTest : public ::testing::Test {
 protected:
  VaryingNumbersTest() {
    numbers_.add("followed", 1, 0, VaryingNumbers::Kind::kFollowed);
    numbers_.add("literal", 7, trace::kNone, VaryingNumbers::Kind::kLiteral);
    entry_.leaves.resize(1);
  }

  bool holds(double followed, double literal = 7) {
    entry_.has_unseen_number = false;
    return static_cast<bool>(numbers_.check(std::array{followed, literal}, entry_));
  }
  bool is_proved(double followed) { return holds(followed) && !entry_.has_unseen_number; }
  void prove(double followed) {
    ASSERT_TRUE(holds(followed));
    numbers_.settle();
  }

  VaryingNumbers numbers_;
  Entry entry_;
};

TEST_F(VaryingNumbersTest, TheRecordedValueIsProved) { EXPECT_TRUE(is_proved(1)); }

TEST_F(VaryingNumbersTest, EachNewValueIsToBeProvedUntilThreeWere) {
  EXPECT_FALSE(is_proved(2));
  prove(2);
  EXPECT_TRUE(is_proved(2));
  EXPECT_FALSE(is_proved(3));
  prove(3);
  EXPECT_TRUE(is_proved(4));
}

TEST_F(VaryingNumbersTest, TheSameValueTwiceCountsOnce) {
  prove(2);
  prove(2);
  EXPECT_FALSE(is_proved(3));
}

TEST_F(VaryingNumbersTest, ZerosOfBothSignsAreTwoValues) {
  prove(0.0);
  EXPECT_FALSE(is_proved(-0.0));
}

TEST_F(VaryingNumbersTest, ANegativeTurnIsNotProvedByAnotherNegativeValue) {
  prove(-7);
  EXPECT_TRUE(is_proved(-7));
  EXPECT_FALSE(is_proved(-1));
  EXPECT_FALSE(is_proved(-std::numeric_limits<double>::infinity()));
  prove(-1);
  EXPECT_TRUE(is_proved(-1));
  EXPECT_FALSE(is_proved(-2));
}

TEST_F(VaryingNumbersTest, APinnedNumberHoldsForTheProvedValuesAlone) {
  prove(2);
  ASSERT_TRUE(holds(3));
  EXPECT_TRUE(numbers_.pin());
  EXPECT_TRUE(is_proved(1));
  EXPECT_TRUE(is_proved(2));
  EXPECT_FALSE(holds(3));
}

TEST_F(VaryingNumbersTest, NothingIsPinnedWhereAllWasProved) {
  ASSERT_TRUE(holds(1));
  EXPECT_FALSE(numbers_.pin());
}

TEST_F(VaryingNumbersTest, ProofsOfAnotherRecordingCountByPath) {
  numbers_.prove([](const std::string& path) -> std::optional<double> {
    if (path != "followed") return std::nullopt;
    return 2;
  });
  EXPECT_TRUE(is_proved(2));
}

TEST_F(VaryingNumbersTest, ALiteralIsWhatItWas) { EXPECT_FALSE(holds(1, 8)); }

}  // namespace
}  // namespace steptape::guards
