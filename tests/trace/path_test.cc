#include "trace/path.h"

#include <gtest/gtest.h>

#include <random>

namespace steptape::trace {
namespace {

class RandomPaths {
 public:
  explicit RandomPaths(unsigned seed) : random_(seed) {}

  std::string path(int depth = 0) {
    std::string path;
    for (int left = 1 + below(3); left > 0; --left) {
      path = join_path(path, name());
      for (int brackets = depth == 2 ? 0 : below(3); brackets > 0; --brackets) {
        path += "[" + this->path(depth + 1) + "]";
      }
    }
    return path;
  }

  std::string name() {
    static constexpr std::string_view kCharacters = "ab0_.@[]\"\\ \n\xc3\xa9<";
    std::string name;
    for (int length = below(6); length > 0; --length) {
      name += kCharacters[static_cast<std::size_t>(below(static_cast<int>(kCharacters.size())))];
    }
    return name;
  }

 private:
  int below(int limit) { return std::uniform_int_distribution(0, limit - 1)(random_); }

  std::mt19937 random_;
};

TEST(PathTest, PlainNamesStandAsTheyAre) {
  EXPECT_EQ(join_path("model", "fc1"), "model.fc1");
  EXPECT_EQ(join_path("", "model"), "model");
  EXPECT_EQ(join_path("model", "a\\b c"), "model.a\\b c");
}

TEST(PathTest, NamesThatWouldMeanSomethingElseStandInQuotes) {
  EXPECT_EQ(join_path("model", "a.b"), "model.\"a.b\"");
  EXPECT_EQ(join_path("model", ""), "model.\"\"");
  EXPECT_EQ(path_component("a@2"), "\"a@2\"");
  EXPECT_EQ(path_component("a[0]"), "\"a[0]\"");
  EXPECT_EQ(path_component("a\"\\"), "\"a\\\"\\\\\"");
}

TEST(PathTest, CallsAreNamedFromTheSecondOn) {
  EXPECT_EQ(call_path("model.fc1", 1), "model.fc1");
  EXPECT_EQ(call_path("model.fc1", 2), "model.fc1@2");
}

TEST(PathTest, TheParentEndsBeforeTheLastComponent) {
  EXPECT_EQ(parent_path("model.fc1.weight"), "model.fc1");
  EXPECT_EQ(parent_path("model.\"a.b\""), "model");
  EXPECT_EQ(parent_path("model.\"a\\\".b\".weight"), "model.\"a\\\".b\"");
  EXPECT_EQ(parent_path("optimizer.state[model.\"]\".weight].exp_avg"),
            "optimizer.state[model.\"]\".weight]");
  EXPECT_EQ(parent_path("model"), "");
}

TEST(PathTest, TheParentOfRandomComponentsIsWhatTheyWereJoinedTo) {
  RandomPaths random(23);
  for (int k = 0; k < 5000; ++k) {
    const std::string parent = random.path();
    const std::string text = join_path(parent, random.name());
    ASSERT_EQ(parent_path(text), parent) << text;
  }
}

TEST(PathTest, DifferentPathsHaveDifferentTexts) {
  EXPECT_NE(join_path(join_path("model", "a"), "b"), join_path("model", "a.b"));
  EXPECT_NE(join_path("model", "\"a\""), join_path("model", "a"));
}

}  // namespace
}  // namespace steptape::trace
