#include "session/observe/json_line.h"

#include <gtest/gtest.h>

#include <limits>

namespace steptape::tests {
namespace {

std::string printed(std::string_view text) {
  session::JsonLine line;
  line.add_text("text", text);
  return line.text();
}

TEST(JsonLineTest, HoldsItsFieldsInOrder) {
  session::JsonLine line;
  line.add_text("step", "train");
  line.add_count("call", 17);
  line.add_real("us", 1.5);
  EXPECT_EQ(line.text(), R"({"step": "train", "call": 17, "us": 1.5})");
}

TEST(JsonLineTest, EscapesWhatWouldEndTheTextOrTheLine) {
  EXPECT_EQ(printed("a\"b\\c\nd\te\x01"), R"({"text": "a\"b\\c\nd\te\u0001"})");
}

TEST(JsonLineTest, KeepsCharactersOfEveryLength) {
  EXPECT_EQ(printed("é → 𝄞"), "{\"text\": \"é → 𝄞\"}");
}

TEST(JsonLineTest, ReplacesBytesThatAreNoCharacter) {
  EXPECT_EQ(printed("a\xff"), "{\"text\": \"a\uFFFD\"}");
  EXPECT_EQ(printed("\xc3"), "{\"text\": \"\uFFFD\"}") << "cut short";
  EXPECT_EQ(printed("\xc0\x80"), "{\"text\": \"\uFFFD\uFFFD\"}") << "overlong";
  EXPECT_EQ(printed("\xed\xa0\x80"), "{\"text\": \"\uFFFD\uFFFD\uFFFD\"}") << "a surrogate";
  EXPECT_EQ(printed("\xf0\x80\x80\x80"), "{\"text\": \"\uFFFD\uFFFD\uFFFD\uFFFD\"}") << "overlong";
  EXPECT_EQ(printed("\xf4\x90\x80\x80"), "{\"text\": \"\uFFFD\uFFFD\uFFFD\uFFFD\"}")
      << "above U+10FFFF";
}

TEST(JsonLineTest, WritesNoNumberThatJsonDoesNotHave) {
  session::JsonLine line;
  line.add_real("us", std::numeric_limits<double>::infinity());
  EXPECT_EQ(line.text(), R"({"us": null})");
}

}  // namespace
}  // namespace steptape::tests
