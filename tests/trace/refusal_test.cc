#include "steptape/refusal.h"

#include <gtest/gtest.h>

#include <set>

#include "steptape/error.h"

namespace steptape {
namespace {

constexpr auto kLast = static_cast<unsigned>(RefusalCode::kNondeterministicOp);

TEST(RefusalTest, EveryCodeHasItsOwnNameThatLeadsBack) {
  std::set<std::string_view> names;
  for (unsigned number = 1; number <= kLast; ++number) {
    const auto code = static_cast<RefusalCode>(number);
    EXPECT_TRUE(names.insert(name_of(code)).second) << name_of(code);
    EXPECT_EQ(refusal_code_of(name_of(code)), code);
  }
}

TEST(RefusalTest, EveryCodeHasARemedyOfOneSentence) {
  for (unsigned number = 1; number <= kLast; ++number) {
    const std::string_view remedy = remedy_of(static_cast<RefusalCode>(number));
    EXPECT_GT(remedy.size(), 20u) << number;
    EXPECT_NE(remedy.back(), '.') << remedy;
  }
}

TEST(RefusalTest, ANumberFromANewerVersionIsSaidToBeUnknown) {
  EXPECT_EQ(name_of(static_cast<RefusalCode>(kLast + 1)), "unknown");
  EXPECT_THROW(refusal_code_of("unknown"), Error);
}

TEST(RefusalTest, TextSaysWhatAndWhereAndTheRemedy) {
  const Refusal refusal{RefusalCode::kNestedStep,
                        "`train` runs inside `eval`",
                        "aten::item",
                        17,
                        "model.fc1",
                        "train.cc:41"};
  EXPECT_EQ(refusal.text(),
            "nested_step: `train` runs inside `eval` [op 17 aten::item, model.fc1, train.cc:41]. "
            "Remedy: " +
                std::string(remedy_of(RefusalCode::kNestedStep)));
}

TEST(RefusalTest, TextLeavesOutPlacesThatAreNotKnown) {
  const Refusal refusal{RefusalCode::kNestedStep, "inside another", "", -1, "", ""};
  EXPECT_TRUE(refusal.text().starts_with("nested_step: inside another. Remedy: "));
}

TEST(ErrorTest, EveryCodeHasItsName) {
  EXPECT_EQ(name_of(ErrorCode::kInvalidArgument), "invalid_argument");
  EXPECT_EQ(name_of(ErrorCode::kFailedPrecondition), "failed_precondition");
  EXPECT_EQ(name_of(ErrorCode::kUnsupported), "unsupported");
  EXPECT_EQ(name_of(ErrorCode::kDataLoss), "data_loss");
  EXPECT_EQ(name_of(ErrorCode::kIo), "io");
  EXPECT_EQ(name_of(ErrorCode::kInternal), "internal");
}

}  // namespace
}  // namespace steptape
