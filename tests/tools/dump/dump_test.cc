#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "tests/tools/process.h"
#include "tests/trace/samples.h"
#include "tests/trace/text/text_parse.h"

namespace steptape::tools {
namespace {

using testing::HasSubstr;
using testing::Not;

using testing::IsEmpty;

using DumpTest = ToolTest;

/// A trace of one step with a warm-up and two variants: modules in a tree, one of them called
/// twice, and an optimizer that lacks a state of one parameter.
class DumpViewTest : public ToolTest {
 protected:
  DumpViewTest() { rewrite(trace::parse(golden("variants.txt"))); }
  nlohmann::json json_of(const std::string& view) const {
    return nlohmann::json::parse(steptape({"dump", path_, view, "--json"}).out);
  }
};

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

TEST_F(DumpTest, WhatAnOpTookIsTold) {
  const auto times = [this] {
    return nlohmann::json::parse(
        steptape({"dump", path_, "--json"}).out)["steps"][0]["recordings"][0]["op_ns"];
  };
  EXPECT_EQ(times(), nlohmann::json::array());
  rewrite(test::numbers_trace());
  EXPECT_EQ(times(), nlohmann::json({1250, 0, 4294967295, 873, 90}));
  EXPECT_THAT(steptape({"dump", path_}).out, HasSubstr(" took 4294967295 ns\n"));
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

TEST_F(DumpViewTest, GuardsStandByKindAndLaterVariantsSayWhatTheyDifferIn) {
  const Outcome outcome = steptape({"dump", path_, "--guards"});
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_EQ(outcome.out, golden("guards.txt"));
  EXPECT_THAT(outcome.err, IsEmpty());
}

TEST_F(DumpViewTest, OptimizersStandWithBitsAndWhatIsMissing) {
  const Outcome outcome = steptape({"dump", path_, "--optimizer"});
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_EQ(outcome.out, golden("optimizer.txt"));
}

TEST_F(DumpViewTest, ModulesStandAsATreeWithTheirCalls) {
  const Outcome outcome = steptape({"dump", path_, "--modules"});
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_EQ(outcome.out, golden("modules.txt"));
}

TEST_F(DumpViewTest, GuardsAsJsonNameTheVariantThatTheyDifferFrom) {
  const auto recordings = json_of("--guards")["steps"][0]["recordings"];
  EXPECT_EQ(recordings[0]["status"], "warm_up");
  EXPECT_THAT(recordings[0]["guards"], IsEmpty());
  EXPECT_EQ(recordings[1]["differs_from"], nullptr);
  EXPECT_EQ(recordings[2]["differs_from"], nlohmann::json({{"recording", 1},
                                                           {"differences",
                                                            {{{"kind", "shape"},
                                                              {"path", "inputs[0].size(0)"},
                                                              {"expected", "3"},
                                                              {"found", "17"}}}}}));
  EXPECT_EQ(recordings[1]["guards"][0], nlohmann::json({{"kind", "argument_count"},
                                                        {"path", "inputs.size"},
                                                        {"expected", "1"},
                                                        {"also_holds", nullptr},
                                                        {"aliases", nlohmann::json::array()}}));
}

TEST_F(DumpViewTest, OptimizersAsJsonHoldBitsGeometryAndWhatIsMissing) {
  const auto optimizer = json_of("--optimizer")["steps"][0]["recordings"][1]["optimizers"][0];
  EXPECT_EQ(
      optimizer["groups"][0]["hyperparameters"][0],
      nlohmann::json(
          {{"name", "lr"}, {"type", "real"}, {"value", "0.001"}, {"bits", "0x3f50624dd2f1a9fc"}}));
  const auto& parameters = optimizer["parameters"];
  EXPECT_EQ(parameters[0]["tensor"],
            nlohmann::json({{"dtype", "float32"}, {"sizes", {4, 2}}, {"device", "cpu"}}));
  EXPECT_EQ(parameters[0]["state"][0],
            nlohmann::json({{"key", "step"}, {"type", "integer"}, {"value", "3"}}));
  EXPECT_EQ(parameters[1]["state"][1], nlohmann::json({{"key", "exp_avg"}, {"missing", true}}));
}

TEST_F(DumpViewTest, ModulesAsJsonHoldCallsAndWhatTheyReadAndWrite) {
  const auto modules = json_of("--modules")["steps"][0]["recordings"][1]["modules"];
  EXPECT_EQ(modules[0]["ops_below"], nlohmann::json({{"forward", 4}, {"backward", 1}}));
  EXPECT_EQ(modules[1]["aliases"], nlohmann::json({"model.decode"}));
  EXPECT_EQ(modules[1]["calls"][1], nlohmann::json({{"path", "model.embed@2"},
                                                    {"order", 4},
                                                    {"first_op", 3},
                                                    {"ops", {{"forward", 1}, {"backward", 0}}}}));
  EXPECT_EQ(modules[3]["reads"], nlohmann::json({"bias", "running_mean"}));
  EXPECT_EQ(modules[3]["writes"], nlohmann::json({"running_mean"}));
}

TEST_F(DumpViewTest, AViewIsThatOfOneStepWhereOneIsNamed) {
  trace::Trace trace = trace::parse(golden("variants.txt"));
  trace.steps.push_back({"eval", "", {}});
  rewrite(trace);
  EXPECT_EQ(steptape({"dump", path_, "--modules", "--step", "eval"}).out, "step eval\n");
  EXPECT_EQ(steptape({"dump", path_, "--modules", "--step", "train"}).out, golden("modules.txt"));
}

TEST_F(DumpViewTest, AViewOfADamagedFileShowsWhatIsLeft) {
  cut(std::filesystem::file_size(path_) - 40);
  EXPECT_EQ(steptape({"dump", path_, "--modules"}).exit_code, 2);
  const Outcome outcome = steptape({"dump", path_, "--modules", "--partial"});
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_EQ(outcome.out, golden("modules.txt"));
  EXPECT_THAT(outcome.err, HasSubstr("cut short"));
}

TEST_F(DumpViewTest, OneViewIsAskedForAtATime) {
  const Outcome outcome = steptape({"dump", path_, "--guards", "--modules"});
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_THAT(outcome.out, IsEmpty());
  EXPECT_EQ(steptape({"dump", path_, "--guards", "--bytes"}).exit_code, 2);
}

TEST_F(DumpViewTest, NamesInAViewMoveNoCursor) {
  trace::Trace trace = trace::parse(golden("variants.txt"));
  for (trace::Recording& recording : trace.steps[0].recordings) {
    recording.modules[0].type = "\x1b[2J";
    recording.modules[3].options[0].name = "\x1b[2J";
    recording.optimizers[0].type = "\x1b[2J";
    recording.optimizers[0].groups[0].hyperparameters[0].name = "\x1b[2J";
    recording.ambient[0].value += "\x1b[2J";
  }
  rewrite(trace);
  for (const char* view : {"--guards", "--optimizer", "--modules"}) {
    const std::string out = steptape({"dump", path_, view}).out;
    EXPECT_THAT(out, Not(HasSubstr("\x1b"))) << view;
    EXPECT_THAT(out, HasSubstr("\\x1b[2J")) << view;
  }
}

TEST_F(DumpViewTest, LongListsOfOptionsGoOnBelow) {
  trace::Trace trace = trace::parse(golden("variants.txt"));
  auto& options = trace.steps[0].recordings[1].modules[4].options;
  for (int i = 0; i < 12; ++i) options.push_back({"option_" + std::to_string(i), {true}});
  rewrite(trace);
  EXPECT_THAT(steptape({"dump", path_, "--modules"}).out,
              HasSubstr("             options option_0=true, option_1=true, option_2=true, "
                        "option_3=true,\n"
                        "                     option_4=true, "));
}

}  // namespace
}  // namespace steptape::tools
