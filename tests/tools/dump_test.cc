#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "tests/tools/process.h"
#include "tests/trace/samples.h"

namespace steptape::tools {
namespace {

using testing::HasSubstr;
using testing::Not;

using DumpTest = ToolTest;

TEST_F(DumpTest, TextWithBytesIsTheGoldenText) {
  const Outcome outcome = steptape({"dump", path_, "--bytes"});
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_EQ(outcome.out, test::golden_text("train.txt"));
}

TEST_F(DumpTest, TextWithoutBytesHasDigests) {
  const std::string out = steptape({"dump", path_}).out;
  EXPECT_EQ(out, trace::print(test::train_trace(), trace::Contents::kDigests));
}

TEST_F(DumpTest, OneStepIsPrintedAlone) {
  trace::Trace trace = test::train_trace();
  trace.steps.push_back({"eval", "", {}});
  rewrite(trace);
  const std::string out = steptape({"dump", path_, "--step", "eval"}).out;
  EXPECT_THAT(out, HasSubstr("step \"eval\""));
  EXPECT_THAT(out, Not(HasSubstr("step \"train\"")));
  EXPECT_THAT(out, Not(HasSubstr("saved")));
}

TEST_F(DumpTest, AnUnknownStepIsTroubleAndTheKnownOnesAreListed) {
  const Outcome outcome = steptape({"dump", path_, "--step", "test"});
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("no step is called `test`; there are: train"));
}

TEST_F(DumpTest, JsonHoldsEveryOp) {
  const auto json = nlohmann::json::parse(steptape({"dump", path_, "--json"}).out);
  const auto& recording = json["steps"][0]["recordings"][0];
  EXPECT_EQ(recording["ops"].size(), 5u);
  EXPECT_EQ(recording["ops"][2]["op"], "aten::add_.Tensor");
  EXPECT_EQ(recording["ops"][2]["inputs"], nlohmann::json({"t5", "t4", "1"}));
  EXPECT_EQ(recording["ops"][2]["module"], nullptr);
  EXPECT_EQ(recording["tensors"][1]["strides"], nlohmann::json({1, 2}));
  EXPECT_EQ(recording["tracked"][1]["tensor"], nullptr);
  EXPECT_EQ(recording["buffers"][3]["content"]["bytes"], 4);
}

TEST_F(DumpTest, JsonWithBytesHoldsThem) {
  const auto json = nlohmann::json::parse(steptape({"dump", path_, "--json", "--bytes"}).out);
  EXPECT_EQ(json["steps"][0]["recordings"][0]["buffers"][3]["content"], "0000803f");
  EXPECT_EQ(json["state"][0]["content"], "0000803f000000400000404000008040");
}

TEST_F(DumpTest, NamesThatAreNoUtf8StayPrintableAsJson) {
  trace::Trace trace;
  trace.steps.push_back({"\xff", "", {}});
  rewrite(trace);
  const auto json = nlohmann::json::parse(steptape({"dump", path_, "--json"}).out);
  EXPECT_EQ(json["steps"][0]["name"], "\xef\xbf\xbd");
}

TEST_F(DumpTest, ADamagedFileIsTroubleWithARemedy) {
  flip(200);
  const Outcome outcome = steptape({"dump", path_});
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_THAT(outcome.out, testing::IsEmpty());
  EXPECT_THAT(outcome.err, HasSubstr("steptape: data_loss: "));
  EXPECT_THAT(outcome.err, HasSubstr("`steptape check`"));
}

TEST_F(DumpTest, WhatIsLeftOfADamagedFileIsPrintedAndWhatIsMissingToldApart) {
  cut(std::filesystem::file_size(path_) - 40);
  const Outcome outcome = steptape({"dump", path_, "--partial"});
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_THAT(outcome.out, HasSubstr("step \"train\""));
  EXPECT_THAT(outcome.err, HasSubstr("cut short"));
}

TEST_F(DumpTest, NothingIsLeftOfAFileWithoutItsHeader) {
  flip(0);
  const Outcome outcome = steptape({"dump", path_, "--partial"});
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("nothing is left"));
}

}  // namespace
}  // namespace steptape::tools
