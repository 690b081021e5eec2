#include <gtest/gtest.h>

#include "tests/trace/samples.h"
#include "tests/trace/text/text_parse.h"

namespace steptape::trace {
namespace {

using test::golden_text;
using test::train_recording;
using test::train_trace;

TEST(PrintTest, GoldenTextComesBackAsItWas) {
  EXPECT_EQ(print(train_trace(), Contents::kBytes), golden_text("train.txt"));
  EXPECT_EQ(print(test::numbers_trace(), Contents::kBytes), golden_text("numbers.txt"));
}

TEST(PrintTest, TextOfARecordingComesBack) {
  const Recording recording = train_recording();
  EXPECT_EQ(parse_recording(print(recording, Contents::kBytes)), recording);
}

TEST(PrintTest, DigestsStandForBytesInTheShortForm) {
  const std::string text = print(train_trace(), Contents::kDigests);
  EXPECT_NE(text.find("content 4 bytes e6f9acca6893caeb591ef4e963e120d4"), std::string::npos)
      << text;
  EXPECT_EQ(text.find("x0000803f"), std::string::npos);
}

TEST(PrintTest, AnOpIsShownWithoutItsPosition) {
  const Recording recording = train_recording();
  EXPECT_EQ(print_op(recording, recording.ops[2]), "aten::add_.Tensor(t5, t4, 1)");
}

TEST(PrintTest, AnOpOfNoOperatorIsShownByItsNumber) {
  Recording recording = train_recording();
  recording.ops[0].op = 99;
  EXPECT_EQ(print_op(recording, recording.ops[0]), "o99(t1, t0)");
}

TEST(PrintTest, OperatorsOfOneFullNameStayApart) {
  Recording recording = train_recording();
  recording.operators.push_back({"aten::mm", "", "another schema"});
  recording.ops[0].op = static_cast<Index>(recording.operators.size() - 1);
  EXPECT_EQ(parse_recording(print(recording, Contents::kBytes)), recording);
}

TEST(PrintTest, OddNamesComeBack) {
  Trace trace = train_trace();
  trace.steps[0].name = "a # \"b\"\n";
  trace.steps[0].recordings[0].operators[0].name = "my op";
  trace.steps[0].recordings[0].modules[1].path = "model.\r\n#";
  EXPECT_EQ(parse(print(trace, Contents::kBytes)), trace);
}

TEST(PrintTest, AnEmptyTraceComesBack) {
  EXPECT_EQ(parse(print(Trace(), Contents::kBytes)), Trace());
}

TEST(PrintTest, EmptyBytesAreNotAbsentBytes) {
  Trace trace;
  trace.state.push_back({"a", 3, make_blob(nullptr, 0)});
  trace.state.push_back({"b", 3, nullptr});
  EXPECT_EQ(parse(print(trace, Contents::kBytes)), trace);
}

}  // namespace
}  // namespace steptape::trace
