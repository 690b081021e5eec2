#include "outcome.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <stdexcept>

namespace digits {
namespace {

using ::testing::HasSubstr;

Outcome some_outcome() {
  Outcome outcome;
  outcome.add_loss(at::scalar_tensor(0.25));
  outcome.add_tensor("model.weight", at::arange(6).view({2, 3}));
  return outcome;
}

TEST(OutcomeTest, EqualOutcomesDoNotDiffer) {
  EXPECT_EQ(difference(some_outcome(), some_outcome()), "");
}

TEST(OutcomeTest, TellsTheSignOfZeroApart) {
  Outcome plus, minus;
  plus.add_loss(at::scalar_tensor(0.0));
  minus.add_loss(at::scalar_tensor(-0.0));
  EXPECT_THAT(difference(plus, minus), HasSubstr("loss 0: expected 0, found -0"));
}

TEST(OutcomeTest, NamesTheTensorThatDiffers) {
  auto other = some_outcome();
  other.add_tensor("model.weight", at::arange(6).view({2, 3}) + 1);
  EXPECT_THAT(difference(some_outcome(), other), HasSubstr("model.weight: expected"));
}

TEST(OutcomeTest, NamesTheTensorThatIsMissing) {
  auto other = some_outcome();
  other.digests.clear();
  EXPECT_THAT(difference(some_outcome(), other), HasSubstr("model.weight"));
}

TEST(OutcomeTest, CountsTensorsThatNobodyExpected) {
  auto other = some_outcome();
  other.add_tensor("model.bias", at::zeros(2));
  EXPECT_THAT(difference(some_outcome(), other), HasSubstr("more than expected"));
}

TEST(OutcomeTest, CountsLosses) {
  auto other = some_outcome();
  other.add_loss(at::scalar_tensor(1.0));
  EXPECT_EQ(difference(some_outcome(), other), "losses: expected 1, found 2");
}

TEST(DigestTest, DependsOnShapeDtypeAndBytes) {
  const auto tensor = at::arange(6);
  EXPECT_EQ(digest_of(tensor), digest_of(tensor.clone()));
  EXPECT_NE(digest_of(tensor), digest_of(tensor.view({2, 3})));
  EXPECT_NE(digest_of(at::zeros(6, at::kFloat)), digest_of(at::zeros(6, at::kInt)));
  EXPECT_EQ(digest_of(tensor.view({2, 3}).t()), digest_of(tensor.view({2, 3}).t().contiguous()));
}

class OutcomeFileTest : public ::testing::Test {
 protected:
  void TearDown() override { std::filesystem::remove(path_); }
  std::filesystem::path path_ =
      std::filesystem::path(::testing::TempDir()) /
      (std::string(::testing::UnitTest::GetInstance()->current_test_info()->name()) + ".json");
};

TEST_F(OutcomeFileTest, ReadsBackWhatItWrote) {
  write(some_outcome(), path_);
  EXPECT_EQ(difference(some_outcome(), read_outcome(path_)), "");
}

TEST_F(OutcomeFileTest, NamesTheMissingFile) {
  EXPECT_THAT([&] { read_outcome(path_); }, ::testing::ThrowsMessage<std::runtime_error>(
                                                HasSubstr(path_.string() + ": cannot be opened")));
}

TEST_F(OutcomeFileTest, RefusesAForeignFile) {
  std::ofstream(path_) << "{\"losses\": 3}";
  EXPECT_THROW(read_outcome(path_), std::runtime_error);
}

TEST(BesideTest, ReplacesTheExtension) {
  EXPECT_EQ(beside("out/digits.tape"), std::filesystem::path("out/digits.json"));
}

}  // namespace
}  // namespace digits
