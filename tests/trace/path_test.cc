#include "trace/path.h"

#include <gtest/gtest.h>

#include <random>

#include "steptape/error.h"

namespace steptape::trace {
namespace {

/// What parsing `text` complains of.
std::string complaint(const std::string& text) {
  try {
    parse_path(text);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    return error.what();
  }
  return "nothing";
}

class RandomPaths {
 public:
  explicit RandomPaths(unsigned seed) : random_(seed) {}

  Path path(int depth = 0) {
    Path path;
    const int count = 1 + below(3);
    for (int i = 0; i < count; ++i) {
      PathComponent& component = path.components.emplace_back();
      component.name = name();
      if (depth == 2) continue;
      for (int brackets = below(3); brackets > 0; --brackets) {
        component.brackets.push_back(text_of(this->path(depth + 1)));
      }
    }
    path.call = below(2) == 0 ? 1 : static_cast<std::uint32_t>(1 + below(100));
    return path;
  }

 private:
  int below(int limit) { return std::uniform_int_distribution(0, limit - 1)(random_); }

  std::string name() {
    static constexpr std::string_view kCharacters = "ab0_.@[]\"\\ \n\xc3\xa9<";
    std::string name;
    for (int length = below(6); length > 0; --length) {
      name += kCharacters[static_cast<std::size_t>(below(static_cast<int>(kCharacters.size())))];
    }
    return name;
  }

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
  EXPECT_EQ(parse_path("model.fc1@2"), (Path{{{"model", {}}, {"fc1", {}}}, 2}));
}

TEST(PathTest, BracketsHoldAnIndexOrAPath) {
  const std::string state = "optimizer.state[model.\"a.b\".weight].exp_avg";
  const Path expected{{{"optimizer", {}}, {"state", {"model.\"a.b\".weight"}}, {"exp_avg", {}}}, 1};
  EXPECT_EQ(parse_path(state), expected);
  EXPECT_EQ(text_of(expected), state);
  EXPECT_EQ(parse_path("optimizer.param_groups[0].betas[1]").components[2],
            (PathComponent{"betas", {"1"}}));
}

TEST(PathTest, TheParentEndsBeforeTheLastComponent) {
  EXPECT_EQ(parent_path("model.fc1.weight"), "model.fc1");
  EXPECT_EQ(parent_path("model.\"a.b\""), "model");
  EXPECT_EQ(parent_path("model.\"a\\\".b\".weight"), "model.\"a\\\".b\"");
  EXPECT_EQ(parent_path("optimizer.state[model.\"]\".weight].exp_avg"),
            "optimizer.state[model.\"]\".weight]");
  EXPECT_EQ(parent_path("model"), "");
}

TEST(PathTest, WhatIsNoPathIsRefused) {
  EXPECT_EQ(complaint(""), "path ``, column 1: expected a name");
  EXPECT_EQ(complaint("model."), "path `model.`, column 7: expected a name");
  EXPECT_EQ(complaint("model.\"a"), "path `model.\"a`, column 7: expected a closing quote");
  EXPECT_EQ(complaint("a[b"), "path `a[b`, column 2: expected a closing bracket");
  EXPECT_EQ(complaint("a[]"), "path ``, column 1: expected a name");
  EXPECT_EQ(complaint("a]"), "path `a]`, column 2: expected the end of the path");
  EXPECT_EQ(complaint("a@"), "path `a@`, column 3: expected the number of a call");
  EXPECT_EQ(complaint("a@0"), "path `a@0`, column 3: expected the number of a call");
  EXPECT_EQ(complaint("a@2.b"), "path `a@2.b`, column 4: expected the end of the path");
  EXPECT_EQ(complaint("\"a\"b"), "path `\"a\"b`, column 4: expected the end of the path");
}

TEST(PathTest, RandomComponentsComeBack) {
  RandomPaths random(19);
  for (int k = 0; k < 5000; ++k) {
    const Path path = random.path();
    const std::string text = text_of(path);
    ASSERT_EQ(parse_path(text), path) << text;
    ASSERT_EQ(text_of(parse_path(text)), text);
  }
}

TEST(PathTest, TheParentOfRandomComponentsIsWhatTheyWereJoinedTo) {
  RandomPaths random(23);
  for (int k = 0; k < 5000; ++k) {
    Path path = random.path();
    path.call = 1;
    const std::string parent = text_of(path);
    const std::string text = join_path(parent, random.path().components.front().name);
    ASSERT_EQ(parent_path(text), parent) << text;
  }
}

TEST(PathTest, DifferentPathsHaveDifferentTexts) {
  EXPECT_NE(join_path(join_path("model", "a"), "b"), join_path("model", "a.b"));
  EXPECT_NE(join_path("model", "\"a\""), join_path("model", "a"));
}

}  // namespace
}  // namespace steptape::trace
