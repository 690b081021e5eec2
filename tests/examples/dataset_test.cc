#include "dataset.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

namespace digits {
namespace {

using ::testing::HasSubstr;

class DatasetTest : public ::testing::Test {
 protected:
  /// One line of a file: 64 times `grey`, then `label`.
  static std::string line(const std::string& grey, const std::string& label) {
    std::string text;
    for (int i = 0; i < 64; ++i) text += grey + ",";
    return text + label + "\n";
  }

  std::filesystem::path file(const std::string& text) const {
    std::ofstream(path_) << text;
    return path_;
  }

  std::string problem_with(const std::string& text) const {
    try {
      read(file(text));
    } catch (const std::runtime_error& problem) {
      return problem.what();
    }
    return "none";
  }

  void TearDown() override { std::filesystem::remove(path_); }

  std::filesystem::path path_ =
      std::filesystem::path(::testing::TempDir()) /
      (std::string(::testing::UnitTest::GetInstance()->current_test_info()->name()) + ".csv");
};

TEST_F(DatasetTest, ReadsAllDigits) {
  const auto images = read(DIGITS_CSV);
  EXPECT_EQ(images.count(), 1797);
  EXPECT_EQ(images.pixels.sizes(), (std::vector<std::int64_t>{1797, 64}));
  EXPECT_EQ(images.pixels.min().item<float>(), 0.0f);
  EXPECT_EQ(images.pixels.max().item<float>(), 1.0f);
  EXPECT_TRUE(images.labels.slice(0, 0, 10).equal(at::arange(10)));
}

TEST_F(DatasetTest, ScalesGreyValues) {
  const auto images = read(file(line("8", "3")));
  EXPECT_TRUE(images.pixels.equal(at::full({1, 64}, 0.5)));
  EXPECT_EQ(images.labels.item<std::int64_t>(), 3);
}

TEST_F(DatasetTest, AcceptsCarriageReturns) {
  auto text = line("1", "9");
  text.insert(text.size() - 1, "\r");
  EXPECT_EQ(read(file(text)).labels.item<std::int64_t>(), 9);
}

TEST_F(DatasetTest, NamesTheMissingFile) {
  EXPECT_THAT([] { read("/nowhere/digits.csv"); },
              ::testing::ThrowsMessage<std::runtime_error>(
                  HasSubstr("/nowhere/digits.csv: cannot be opened")));
}

TEST_F(DatasetTest, RefusesAnEmptyFile) {
  EXPECT_THAT(problem_with(""), HasSubstr("expected images, found no line"));
}

TEST_F(DatasetTest, NamesLineOfAGreyValueOutOfRange) {
  EXPECT_THAT(problem_with(line("1", "0") + line("17", "0")),
              HasSubstr(".csv:2: expected a grey value from 0 to 16, found '17'"));
}

TEST_F(DatasetTest, RefusesWhatIsNoNumber) {
  EXPECT_THAT(problem_with(line("x", "0")), HasSubstr("found 'x'"));
  EXPECT_THAT(problem_with(line("1.5", "0")), HasSubstr("found '1.5'"));
}

TEST_F(DatasetTest, RefusesALabelOutOfRange) {
  EXPECT_THAT(problem_with(line("1", "10")), HasSubstr("a label from 0 to 9, found '10'"));
}

TEST_F(DatasetTest, RefusesAShortLine) {
  EXPECT_THAT(problem_with("1,2,3\n"), HasSubstr("expected a grey value from 0 to 16, found ''"));
}

TEST_F(DatasetTest, RefusesALongLine) {
  EXPECT_THAT(problem_with(line("1", "2,3")), HasSubstr("expected the end of the line, found '3'"));
}

TEST_F(DatasetTest, SplitsFourToOneWithoutOverlap) {
  Images numbered;
  numbered.labels = at::arange(1797);
  numbered.pixels = at::zeros({1797, 64});
  const auto halves = split(numbered);
  EXPECT_EQ(halves.train.count(), 1438);
  EXPECT_EQ(halves.test.count(), 359);
  const auto all = at::cat({halves.train.labels, halves.test.labels});
  EXPECT_TRUE(std::get<0>(all.sort()).equal(numbered.labels));
}

TEST(ShuffledTest, HoldsEveryNumberOnce) {
  const auto order = shuffled(1000, 7, 3);
  EXPECT_EQ(std::set<std::int64_t>(order.begin(), order.end()).size(), 1000u);
  EXPECT_EQ(*std::max_element(order.begin(), order.end()), 999);
}

TEST(ShuffledTest, IsTheSameEverywhere) {
  EXPECT_EQ(shuffled(8, 7, 0), (std::vector<std::int64_t>{2, 3, 5, 6, 1, 0, 4, 7}));
}

TEST(ShuffledTest, DependsOnSeedAndEpoch) {
  EXPECT_EQ(shuffled(100, 7, 3), shuffled(100, 7, 3));
  EXPECT_NE(shuffled(100, 7, 3), shuffled(100, 7, 4));
  EXPECT_NE(shuffled(100, 7, 3), shuffled(100, 8, 3));
}

class BatchesTest : public ::testing::Test {
 protected:
  static Batches batches_of(std::int64_t count, std::int64_t batch_size) {
    return Batches({at::zeros({count, 64}), at::arange(count)}, batch_size, 7);
  }
};

TEST_F(BatchesTest, AllHaveOneShape) {
  auto batches = batches_of(10, 4);
  EXPECT_EQ(batches.per_epoch(), 2);
  for (std::int64_t step = 0; step < 5; ++step) EXPECT_EQ(batches.at(step).count(), 4);
}

TEST_F(BatchesTest, AnEpochHoldsNoImageTwice) {
  auto batches = batches_of(8, 4);
  const auto seen = at::cat({batches.at(2).labels, batches.at(3).labels});
  EXPECT_TRUE(std::get<0>(seen.sort()).equal(at::arange(8)));
}

TEST_F(BatchesTest, DependOnTheStepAlone) {
  auto forwards = batches_of(100, 8);
  auto jumping = batches_of(100, 8);
  const auto first = forwards.at(0).labels;
  forwards.at(40);
  EXPECT_TRUE(forwards.at(40).labels.equal(jumping.at(40).labels));
  EXPECT_TRUE(forwards.at(0).labels.equal(first));
}

TEST_F(BatchesTest, NeedOneWholeBatch) {
  EXPECT_THROW(batches_of(3, 4), std::invalid_argument);
  EXPECT_THROW(batches_of(3, 0), std::invalid_argument);
}

}  // namespace
}  // namespace digits
