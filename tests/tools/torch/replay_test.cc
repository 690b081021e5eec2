#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <torch/serialize.h>

#include <fstream>

#include "tests/tools/torch/two_step_trace.h"

namespace steptape::tools {
namespace {

using testing::HasSubstr;

class ReplayToolTest : public TwoStepTrace {
 protected:
  Outcome replay(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), "replay");
    return run(std::move(arguments));
  }
  nlohmann::json replay_json(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), "replay");
    return run_json(std::move(arguments));
  }
};

TEST_F(ReplayToolTest, RunsStepsFromAFileOfTensors) {
  torch::save(std::vector<at::Tensor>{at::full({4}, 2.0)}, tape("x.pt"));
  const auto json =
      replay_json({tape(), "--step", "grow", "--inputs", tape("x.pt"), "--steps", "3"});
  EXPECT_EQ(json["steps"], 3);
  EXPECT_EQ(json["result_values"][0], 4 * (4 + 3 * 2));
}

TEST_F(ReplayToolTest, SavesTheStateItReached) {
  torch::save(std::vector<at::Tensor>{at::full({4}, 2.0)}, tape("x.pt"));
  replay_json({tape(), "--step", "grow", "--inputs", tape("x.pt"), "--save", tape("next.tape")});
  EXPECT_EQ(replay_json({tape("next.tape"), "--step", "sum"})["result_values"][0], 24);
  EXPECT_EQ(replay_json({tape(), "--step", "sum"})["result_values"][0], 16);
}

TEST_F(ReplayToolTest, RandomInputsFollowTheSeed) {
  const auto digest = [&](const char* seed) {
    return replay_json(
        {tape(), "--step", "grow", "--inputs", "random", "--seed", seed})["result_digests"][0];
  };
  EXPECT_EQ(digest("1"), digest("1"));
  EXPECT_NE(digest("1"), digest("2"));
}

TEST_F(ReplayToolTest, PrintsResultsOnStdoutAlone) {
  const Outcome outcome = replay({tape(), "--step", "sum"});
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_THAT(outcome.out, HasSubstr("value of the last step: 16"));
  EXPECT_EQ(outcome.err, "");
}

TEST_F(ReplayToolTest, InputsThatAGuardRefusesAreExitOne) {
  torch::save(std::vector<at::Tensor>{at::ones({5})}, tape("x.pt"));
  const Outcome outcome = replay({tape(), "--step", "grow", "--inputs", tape("x.pt")});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_EQ(outcome.out, "");
  EXPECT_THAT(outcome.err, HasSubstr("inputs[0].size(0): 4 → 5"));
}

TEST_F(ReplayToolTest, TroubleIsExitTwo) {
  std::ofstream(tape("text.pt")) << "no tensors";
  const auto expect_trouble = [&](std::vector<std::string> arguments, const std::string& says) {
    const Outcome outcome = replay(std::move(arguments));
    EXPECT_EQ(outcome.exit_code, 2) << says;
    EXPECT_EQ(outcome.out, "");
    EXPECT_THAT(outcome.err, HasSubstr(says));
  };
  expect_trouble({tape("none.tape"), "--step", "grow"}, "none.tape");
  expect_trouble({tape()}, "choose one with --step: grow, sum");
  expect_trouble({tape(), "--step", "shrink"}, "there are: grow, sum");
  expect_trouble({tape(), "--step", "grow", "--inputs", tape("text.pt")}, "text.pt");
  expect_trouble({tape(), "--step", "grow", "--inputs", tape("none.pt")}, "none.pt");
  expect_trouble({tape(), "--step", "sum", "--save", "/proc/none/x.tape"}, "/proc/none/x.tape");
}

TEST_F(ReplayToolTest, HelpHasExamples) {
  const Outcome outcome = replay({"--help"});
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_THAT(outcome.out, HasSubstr("Examples:"));
}

}  // namespace
}  // namespace steptape::tools
