#include <gmock/gmock.h>

#include <set>

#include "tests/tools/torch/two_step_trace.h"

namespace steptape::tools {
namespace {

using testing::HasSubstr;

using BenchToolTest = TwoStepTrace;

TEST_F(BenchToolTest, TimesAReplayOpByOp) {
  const auto json = run_json({"bench", tape(), "--step", "grow", "--steps", "5"});
  EXPECT_EQ(json["step"], "grow");
  EXPECT_EQ(json["replays"], 5);
  EXPECT_GT(json["median_us"], 0);
  EXPECT_GT(json["floor_us"], 0);
  std::set<std::string> names;
  std::uint64_t calls = 0;
  for (const auto& row : json["rows"]) {
    names.insert(row["name"]);
    calls += row["ops"].size();
    EXPECT_GT(row["us"], 0) << row;
    EXPECT_EQ(row["kernel"], row["reason"] == "") << row;
  }
  EXPECT_EQ(names, (std::set<std::string>{"aten::add_", "aten::sum"}));
  EXPECT_EQ(calls, json["calls"]);
}

TEST_F(BenchToolTest, EachLineHasItsPlace) {
  const Outcome outcome = run({"bench", tape(), "--step", "grow", "--steps", "3", "--each"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("step \"grow\", 3 replays: median "));
  EXPECT_THAT(outcome.out, HasSubstr("aten::add_  at op 0 "));
  EXPECT_THAT(outcome.out, HasSubstr("2 calls, "));
  EXPECT_EQ(outcome.err, "");
}

TEST_F(BenchToolTest, LeavesTheTraceAsItWas) {
  const auto sum = [&] { return run_json({"replay", tape(), "--step", "sum"})["result_values"]; };
  const auto before = sum();
  run_json({"bench", tape(), "--step", "grow", "--steps", "2"});
  EXPECT_EQ(sum(), before);
}

TEST_F(BenchToolTest, TroubleIsExitTwo) {
  const auto expect_trouble = [&](std::vector<std::string> arguments, const std::string& says) {
    arguments.insert(arguments.begin(), "bench");
    const Outcome outcome = run(std::move(arguments));
    EXPECT_EQ(outcome.exit_code, 2) << says;
    EXPECT_EQ(outcome.out, "");
    EXPECT_THAT(outcome.err, HasSubstr(says));
  };
  expect_trouble({tape("none.tape")}, "none.tape");
  expect_trouble({tape()}, "choose one with --step: grow, sum");
  expect_trouble({tape(), "--step", "grow", "--steps", "0"}, "--steps");
}

}  // namespace
}  // namespace steptape::tools
