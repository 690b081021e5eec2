#include "tests/trace/text/text_parse.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "steptape/error.h"
#include "tests/trace/samples.h"

namespace steptape::trace {
namespace {

using test::golden_text;
using testing::HasSubstr;

/// What parsing `text` complains of.
std::string parse_error(const std::string& text) {
  try {
    parse(text);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    return error.what();
  }
  return "nothing";
}

std::string recording_with(const std::string& line) {
  return "steptape trace 1\nstep \"train\" at \"\"\nrecording probe\n" + line + "\n";
}

/// The golden text with `from` replaced once.
std::string golden_with(const std::string& from, const std::string& to) {
  std::string text = golden_text("train.txt");
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(ParseTest, SkipsBlankLinesAndComments) {
  EXPECT_EQ(parse("\n# a comment\nsteptape trace 1  # more\n\n"), Trace());
}

TEST(ParseTest, TellsLineAndColumnAndBothSides) {
  EXPECT_EQ(parse_error(recording_with("  tensor t0 in b0 float33")),
            "line 4, column 19: no dtype is called `float33`");
  EXPECT_EQ(parse_error(recording_with("  tensor t0 in 12")),
            "line 4, column 16: expected a buffer, found `12`");
  EXPECT_EQ(parse_error(recording_with("  tensor t0")),
            "line 4, column 12: expected `in`, found the end of the line");
}

TEST(ParseTest, EmptyTextIsNoTrace) {
  EXPECT_EQ(parse_error(""),
            "line 0, column 1: expected `steptape trace 1`, found the end of the line");
}

TEST(ParseTest, AnotherVersionIsRefused) {
  EXPECT_THAT(parse_error("steptape trace 2\n"), HasSubstr("line 1, column 16: expected `1`"));
}

TEST(ParseTest, PositionsCountUp) {
  EXPECT_THAT(parse_error(golden_with("tensor t1 ", "tensor t2 ")),
              HasSubstr("column 10: expected `t1`, found `t2`"));
  EXPECT_THAT(parse_error(golden_with("op 1:", "op 2:")), HasSubstr("expected op 1"));
  EXPECT_THAT(
      parse_error(golden_with("call 2 sequence 0", "sequence 0 digest " + std::string(32, '0'))),
      HasSubstr("expected no digest, since the op before has none"));
}

TEST(ParseTest, AnOpNamesAnOperatorLine) {
  EXPECT_THAT(parse_error(golden_with("aten::mm(t1, t0)", "aten::bmm(t1, t0)")),
              HasSubstr("expected an operator of an operator line above, found `aten::bmm`"));
}

TEST(ParseTest, ARecordingNeedsAStep) {
  EXPECT_THAT(parse_error("steptape trace 1\nrecording probe\n"),
              HasSubstr("a step line before this one"));
}

TEST(ParseTest, AGroupNeedsAnOptimizer) {
  EXPECT_THAT(parse_error(recording_with("group")), HasSubstr("an optimizer line before this one"));
  EXPECT_THAT(parse_error(recording_with("optimizer \"o\" \"SGD\"\nparameter \"w\"")),
              HasSubstr("a group line before this one"));
}

TEST(ParseTest, AnOptionNeedsAModule) {
  EXPECT_THAT(parse_error(recording_with("option \"bias\" = true")),
              HasSubstr("a module line before this one"));
}

TEST(ParseTest, WordsBehindTheLineAreRefused) {
  EXPECT_THAT(parse_error(recording_with("result t0 t1")),
              HasSubstr("expected the end of the line, found `t1`"));
}

TEST(ParseTest, UnknownLinesAreRefused) {
  EXPECT_THAT(parse_error(recording_with("tensors t0")),
              HasSubstr("expected a line of a trace or recording, found `tensors`"));
}

TEST(ParseTest, ATextWithoutItsBytesIsRefused) {
  EXPECT_THAT(parse_error(print(test::train_trace(), Contents::kDigests)),
              HasSubstr("printed without them"));
}

TEST(ParseTest, BrokenStringsAreRefused) {
  EXPECT_THAT(parse_error(recording_with("scope s0 \"open")), HasSubstr("expected `\"`"));
  EXPECT_THAT(parse_error(recording_with("scope s0 \"\\q\"")), HasSubstr("an escape"));
  EXPECT_THAT(parse_error(recording_with("scope s0 \"\\x4")), HasSubstr("an escape"));
}

TEST(ParseTest, NumbersThatDoNotFitAreRefused) {
  EXPECT_THAT(parse_error(recording_with("result t4294967296")), HasSubstr("a tensor"));
  EXPECT_THAT(parse_error(recording_with("input \"i\" = 99999999999999999999")),
              HasSubstr("an integer of 64 bits"));
  EXPECT_THAT(parse_error(golden_with("address 16", "address 256")),
              HasSubstr("an address remainder"));
}

TEST(ParseTest, EveryTruncatedGoldenTextIsReadOrRefused) {
  const std::string text = golden_text("train.txt");
  for (std::size_t length = 0; length < text.size(); ++length) {
    try {
      parse(text.substr(0, length));
    } catch (const Error& error) {
      ASSERT_EQ(error.code(), ErrorCode::kInvalidArgument) << error.what();
    }
  }
}

}  // namespace
}  // namespace steptape::trace
