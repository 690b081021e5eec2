#include <gmock/gmock.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "storage/trace/reader.h"
#include "storage/trace/writer.h"
#include "tests/tools/process.h"
#include "tests/trace/made_up.h"

namespace steptape::tools {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

/// a.tape, b.tape, ...: a step with one batch size each.
class MergeToolTest : public ToolTest {
 protected:
  static trace::Trace trace_of_batch(std::int64_t batch) {
    trace::Trace trace;
    trace.environment = {{"threads", "2"}};
    trace.steps.push_back({"train", "", {test::make_up({.seed = 3, .batch = batch})}});
    trace.steps[0].recordings[0].status = trace::Status::kTrusted;
    return trace;
  }
  std::string put(const std::string& name, const trace::Trace& trace) const {
    storage::write(trace, folder_ / name);
    return folder_ / name;
  }
  Outcome merge(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), "merge");
    arguments.insert(arguments.end(), {"-o", out_});
    return steptape(arguments);
  }
  void expect_refused(const Outcome& outcome, const std::string& words) const {
    EXPECT_EQ(outcome.exit_code, 2);
    EXPECT_THAT(outcome.out, IsEmpty());
    EXPECT_EQ(outcome.err, "steptape: " + words + "\n");
  }

  std::string out_ = folder_ / "all.tape";
  std::string a_ = put("a.tape", trace_of_batch(32));
  std::string b_ = put("b.tape", trace_of_batch(16));
};

TEST_F(MergeToolTest, RecordingsBecomeVariants) {
  const std::string again = put("c.tape", trace_of_batch(32));
  const Outcome outcome = merge({a_, b_, again});
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_THAT(outcome.err, IsEmpty());
  EXPECT_THAT(outcome.out, HasSubstr("all.tape: 1 step of 3 traces, "));
  EXPECT_THAT(outcome.out, HasSubstr("\n  train: 2 variants; recordings: 1 of " + a_ + ", 1 of " +
                                     b_ + "; known already: 1 of " + again + "\n"));
  const trace::Trace all = storage::read(out_);
  ASSERT_EQ(all.steps[0].recordings.size(), 2u);
  EXPECT_EQ(all.steps[0].recordings[1], trace_of_batch(16).steps[0].recordings[0]);
  EXPECT_EQ(steptape({"check", out_}).exit_code, 0);
}

TEST_F(MergeToolTest, CallsThatWereRecordedBesidesAreNoVariants) {
  trace::Trace trace = trace_of_batch(32);
  auto& recordings = trace.steps[0].recordings;
  for (std::uint64_t call = 1; call <= 9; ++call) {
    recordings.push_back(recordings[0]);
    recordings.back().status = trace::Status::kProbe;
    recordings.back().call = call;
  }
  const Outcome outcome = merge({put("a.tape", trace), b_});
  EXPECT_THAT(outcome.err, IsEmpty());
  EXPECT_THAT(outcome.out, HasSubstr("\n  train: 2 variants; recordings: 10 of "));
}

TEST_F(MergeToolTest, JsonSaysWhereRecordingsComeFrom) {
  trace::Trace saved = trace_of_batch(16);
  saved.state.push_back({"model.m0.weight", 0, trace::make_blob("1234", 4)});
  put("b.tape", saved);
  const auto json = nlohmann::json::parse(merge({a_, b_, "--json"}).out);
  EXPECT_EQ(json["file"], out_);
  EXPECT_EQ(json["inputs"], (nlohmann::json{a_, b_}));
  EXPECT_EQ(json["state_of"], b_);
  EXPECT_THAT(json["warnings"], IsEmpty());
  EXPECT_EQ(json["steps"],
            (nlohmann::json{{{"name", "train"},
                             {"variants", 2},
                             {"recordings",
                              {{{"file", a_}, {"recording", 0}}, {{"file", b_}, {"recording", 0}}}},
                             {"left_out", nlohmann::json::array()}}}));
}

TEST_F(MergeToolTest, WhatCannotBeJoinedIsRefusedAndNothingWritten) {
  trace::Trace other = trace_of_batch(16);
  other.environment[0].value = "4";
  put("b.tape", other);
  expect_refused(merge({a_, b_}), "invalid_argument: " + b_ + " cannot be joined with " + a_ +
                                      ": environment threads: 2 → 4");
  EXPECT_FALSE(std::filesystem::exists(out_));
}

TEST_F(MergeToolTest, AnInputIsNeverReplaced) {
  const std::string before = a_;
  std::filesystem::create_symlink(a_, out_);
  for (const char* option : {"--json", "--force"}) {
    expect_refused(merge({a_, b_, option}),
                   "invalid_argument: " + out_ +
                       " is one of the traces to join: choose another name for the result");
  }
  EXPECT_EQ(storage::read(a_), trace_of_batch(32));
}

TEST_F(MergeToolTest, AResultIsReplacedWhereAskedFor) {
  EXPECT_EQ(merge({a_, b_}).exit_code, 0);
  expect_refused(merge({b_, a_}), "failed_precondition: " + out_ + " exists; --force replaces it");
  EXPECT_EQ(merge({b_, a_, "--force"}).exit_code, 0);
  EXPECT_EQ(storage::read(out_).steps[0].recordings[0], trace_of_batch(16).steps[0].recordings[0]);
  std::ofstream(out_, std::ios::trunc) << "a text";
  EXPECT_EQ(merge({a_, b_, "--force"}).exit_code, 2) << "what is not a trace is never replaced";
}

TEST_F(MergeToolTest, MoreVariantsThanASessionKeepsAreTold) {
  std::vector<std::string> files;
  for (std::int64_t batch = 1; batch <= 65; ++batch) {
    files.push_back(put(std::to_string(batch) + ".tape", trace_of_batch(batch)));
  }
  const Outcome outcome = merge(files);
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_EQ(
      outcome.err,
      "steptape: step train has 65 variants, more than the 64 that a session keeps by default "
      "(max_variants)\n");
}

TEST_F(MergeToolTest, StateThatDiffersIsTold) {
  trace::Trace first = trace_of_batch(32);
  first.state.push_back({"model.m0.weight", 0, trace::make_blob("1234", 4)});
  trace::Trace second = trace_of_batch(16);
  second.state.push_back({"model.m0.weight", 0, trace::make_blob("5678", 4)});
  const Outcome outcome = merge({put("a.tape", first), put("b.tape", second)});
  EXPECT_THAT(outcome.out, HasSubstr("  saved state of " + a_ + "\n"));
  EXPECT_THAT(outcome.err, StartsWith("steptape: 1 path saved by several traces with different "
                                      "contents, model.m0.weight first; the first trace's stay."));
}

TEST_F(MergeToolTest, WhatCannotBeReadIsTrouble) {
  expect_refused(
      merge({a_, folder_ / "none.tape"}),
      "io: cannot read " + (folder_ / "none.tape").string() + ": No such file or directory");
  expect_refused(merge({a_, a_}), "invalid_argument: " + a_ + " and " + a_ + " are one file");
  EXPECT_EQ(merge({a_}).exit_code, 2);
}

}  // namespace
}  // namespace steptape::tools
