#include "trace/record_request.h"

#include <gtest/gtest.h>

#include "steptape/error.h"

namespace steptape::trace {
namespace {

TEST(RecordRequestTest, WordsAreReadAndWritten) {
  const std::string text =
      "first=3,every=100,at=57,at=90,signal=10,nonfinite,state,digests,timings,again:a,b:c.tape";
  const RecordRequest request = RecordRequest::parse(text);
  EXPECT_EQ(request.record.first, 3U);
  EXPECT_EQ(request.record.every, 100U);
  EXPECT_EQ(request.record.at, (std::vector<std::uint64_t>{57, 90}));
  EXPECT_EQ(request.record.on_signal, 10);
  EXPECT_TRUE(request.record.on_nonfinite);
  EXPECT_TRUE(request.record.state);
  EXPECT_TRUE(request.digests);
  EXPECT_TRUE(request.timings);
  EXPECT_TRUE(request.is_again);
  EXPECT_EQ(request.trace, "a,b:c.tape");
  EXPECT_EQ(request.text(), text);
}

TEST(RecordRequestTest, NothingIsAskedForByNothing) {
  EXPECT_EQ(RecordRequest{}.text(), "");
  EXPECT_EQ(RecordRequest::parse("").text(), "");
  EXPECT_EQ(RecordRequest::parse(":run.tape").text(), ":run.tape");
}

TEST(RecordRequestTest, WordsThatThereAreNotAreRefused) {
  for (const char* wrong :
       {"att=3", "at", "at=", "at=0", "at=-1", "at=3x", "at=1e3", "digest", "digests=1",
        "first=18446744073709551616", "signal=65", ",", "at=3,,at=4", "digests:"}) {
    EXPECT_THROW(RecordRequest::parse(wrong), Error) << wrong;
  }
}

TEST(RecordRequestTest, WhatTheProgramAsksForStays) {
  Options options{.trace = "run.tape", .record = {.first = 5, .every = 10, .at = {7}}};
  RecordRequest::parse("first=3,at=57,digests:other.tape").add_to(options, 1);
  EXPECT_EQ(options.trace, "run.tape");
  EXPECT_EQ(options.record.first, 5U);
  EXPECT_EQ(options.record.every, 10U);
  EXPECT_EQ(options.record.at, (std::vector<std::uint64_t>{7, 57}));
  EXPECT_TRUE(options.digests);
  EXPECT_FALSE(options.timings);
  RecordRequest::parse("every=3").add_to(options, 1);
  EXPECT_EQ(options.record.every, 3U);
}

TEST(RecordRequestTest, SessionsWithoutATraceGetOneEach) {
  const RecordRequest request = RecordRequest::parse("at=1,again:out/run.tape");
  Options first, second;
  request.add_to(first, 1);
  request.add_to(second, 2);
  EXPECT_EQ(first.trace, "out/run.again.tape");
  EXPECT_EQ(second.trace, "out/run.session2.again.tape");
}

TEST(RecordRequestTest, WithoutATraceNothingIsRecorded) {
  Options options;
  RecordRequest::parse("at=1,digests").add_to(options, 1);
  EXPECT_TRUE(options.record.at.empty());
  EXPECT_FALSE(options.digests);
}

TEST(ShellWordTest, IsOneWordWhateverItHolds) {
  EXPECT_EQ(shell_word("train.py"), "train.py");
  EXPECT_EQ(shell_word("--lr=1e-3"), "--lr=1e-3");
  EXPECT_EQ(shell_word(""), "''");
  EXPECT_EQ(shell_word("a b"), "'a b'");
  EXPECT_EQ(shell_word("it's $HOME"), "'it'\\''s $HOME'");
}

}  // namespace
}  // namespace steptape::trace
