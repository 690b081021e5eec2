#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "text.h"

namespace char_gru {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

class CharGruTextTest : public ::testing::Test {
 protected:
  std::filesystem::path file(const std::string& text) const {
    std::ofstream(path_, std::ios::binary) << text;
    return path_;
  }
  void TearDown() override { std::filesystem::remove(path_); }

  std::filesystem::path path_ =
      std::filesystem::path(::testing::TempDir()) /
      (std::string(::testing::UnitTest::GetInstance()->current_test_info()->name()) + ".txt");
};

TEST_F(CharGruTextTest, ReadsTheConstitution) {
  const auto text = read(CHAR_GRU_TEXT);
  EXPECT_EQ(text.codes.numel(), 45345);
  EXPECT_EQ(text.alphabet.size(), 71U);
  EXPECT_EQ(text.alphabet.front(), '\n');
}

TEST_F(CharGruTextTest, NumbersBytesInAscendingOrder) {
  const auto text = read(file("b\xffzab"));
  EXPECT_EQ(text.alphabet, "abz\xff");
  EXPECT_TRUE(text.codes.equal(at::tensor({1, 3, 2, 0, 1}, at::kLong)));
}

TEST_F(CharGruTextTest, NamesTheFileThatCannotBeReadOrIsEmpty) {
  EXPECT_THAT([&] { read(path_); },
              ThrowsMessage<std::runtime_error>(HasSubstr(path_.string() + ": cannot be opened")));
  file("");
  EXPECT_THAT([&] { read(path_); },
              ThrowsMessage<std::runtime_error>(HasSubstr(path_.string() + ": expected a text")));
}

class CharGruBatchesTest : public ::testing::Test {
 protected:
  /// A text whose characters are their own places.
  static Text places(std::int64_t count) { return {std::string(), at::arange(count)}; }
};

TEST_F(CharGruBatchesTest, ReadThePartsSideBySideAndInOrder) {
  const Batches batches(places(13), 2, 3);
  EXPECT_EQ(batches.per_pass(), 2);
  EXPECT_TRUE(
      batches.at(0).characters.t().equal(at::tensor({0, 1, 2, 6, 7, 8}, at::kLong).view({2, 3})));
  EXPECT_TRUE(
      batches.at(1).characters.t().equal(at::tensor({3, 4, 5, 9, 10, 11}, at::kLong).view({2, 3})));
}

TEST_F(CharGruBatchesTest, ForetellTheCharacterBehindEach) {
  const Batches batches(places(13), 2, 3);
  for (std::int64_t step = 0; step < 4; ++step) {
    EXPECT_TRUE(batches.at(step).next.equal(batches.at(step).characters + 1));
  }
}

TEST_F(CharGruBatchesTest, StartAnewBehindTheLastOne) {
  const Batches batches(places(13), 2, 3);
  EXPECT_TRUE(batches.at(0).starts);
  EXPECT_FALSE(batches.at(1).starts);
  EXPECT_TRUE(batches.at(2).starts);
  EXPECT_TRUE(batches.at(2).characters.equal(batches.at(0).characters));
}

TEST_F(CharGruBatchesTest, NeedOneWholeBatch) {
  EXPECT_NO_THROW(Batches(places(7), 2, 3));
  EXPECT_THROW(Batches(places(6), 2, 3), std::invalid_argument);
  EXPECT_THROW(Batches(places(7), 0, 3), std::invalid_argument);
  EXPECT_THROW(Batches(places(7), 2, 0), std::invalid_argument);
}

}  // namespace
}  // namespace char_gru
