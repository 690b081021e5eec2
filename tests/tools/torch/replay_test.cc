#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <steptape/steptape.h>
#include <torch/serialize.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/tools/process.h"

namespace steptape::tools {
namespace {

using testing::HasSubstr;

/// A trace of two steps over one tracked tensor: "grow" adds its argument to it, "sum" sums it up.
class ReplayToolTest : public testing::Test {
 protected:
  ReplayToolTest()
      : folder_(std::filesystem::temp_directory_path() /
                ("steptape_replay_" + std::to_string(getpid()) + "_" +
                 testing::UnitTest::GetInstance()->current_test_info()->name())) {
    std::filesystem::create_directories(folder_);
    at::Tensor total = at::zeros({4});
    Options options;
    options.verify.rate = 0;
    Session session(options);
    session.track("total", total);
    auto grow = session.wrap("grow", [&](at::Tensor x) { return total.add_(x).sum(); });
    auto sum = session.wrap("sum", [&] { return total.sum(); });
    for (int i = 0; i < 4; ++i) {
      grow(at::ones({4}));
      sum();
    }
    session.save(tape());
  }
  ~ReplayToolTest() override { std::filesystem::remove_all(folder_); }

  std::string tape(const std::string& name = "run.tape") const { return folder_ / name; }
  Outcome replay(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), "replay");
    return run_program(STEPTAPE_TOOL, arguments, folder_);
  }
  nlohmann::json replay_json(std::vector<std::string> arguments) const {
    arguments.emplace_back("--json");
    const Outcome outcome = replay(std::move(arguments));
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    return nlohmann::json::parse(outcome.out);
  }

  std::filesystem::path folder_;
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
