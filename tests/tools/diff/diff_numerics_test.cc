#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "tests/tools/recorded_runs.h"

namespace steptape::tools {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

/// run.tape and other.tape: call 3 of each, recorded with digests.
class DiffNumericsTest : public RecordedRunsTest {
 protected:
  DiffNumericsTest() { write(other_, {{3, {.flipped = {1}}}}); }

  Outcome diff(std::vector<std::string> options = {}) const {
    options.insert(options.begin(), {"diff", path_, other_});
    return steptape(options);
  }
};

TEST_F(DiffNumericsTest, EqualRunsAreEqual) {
  write(other_, {{3}});
  EXPECT_EQ(diff().out, "equal\n");
  EXPECT_EQ(diff().exit_code, 0);
}

TEST_F(DiffNumericsTest, TheOriginIsNamedAndWhatReceivedIt) {
  EXPECT_EQ(diff().out, golden("diff_numerics.txt"));
  EXPECT_EQ(diff().exit_code, 1);
}

TEST_F(DiffNumericsTest, StatCountsByModule) {
  EXPECT_EQ(diff({"--stat"}).out, golden("diff_numerics_stat.txt"));
}

TEST_F(DiffNumericsTest, OtherBitsAtEntryAreTold) {
  write(other_, {{3, {.entered = {{"inputs[0]", 1}}}}});
  EXPECT_THAT(diff().out,
              StartsWith("differ: numerics (train: call 3: entered with other bits: inputs[0])\n"));
  write(other_,
        {{3, {.entered = {{"inputs[0]", 1}, {"model.m0.weight", 1}, {"model.m1.weight", 1}}}}});
  EXPECT_THAT(diff().out, HasSubstr("inputs[0], model.m0.weight (and 1 more)"));
  EXPECT_THAT(diff({"--all"}).out, HasSubstr("inputs[0], model.m0.weight, model.m1.weight\n"));
}

TEST_F(DiffNumericsTest, TheFirstCallIsNamed) {
  write(path_, {{9}, {5}, {2}});
  write(other_, {{2}, {5, {.flipped = {1}}}, {9, {.flipped = {0}}}});
  EXPECT_THAT(diff().out, StartsWith("differ: numerics (train: call 5: origin op 1 "));
}

TEST_F(DiffNumericsTest, JsonHoldsEveryOp) {
  const auto json = nlohmann::json::parse(diff({"--json"}).out);
  const auto& recording = json["steps"][0]["recordings"][0];
  EXPECT_EQ(recording["paired_by"], "call");
  EXPECT_EQ(recording["call"], 3);
  const auto& numerics = recording["numerics"];
  EXPECT_EQ(numerics["origins"], 1);
  EXPECT_EQ(numerics["ops"].size(), json["counts"]["numerics"]);
  EXPECT_EQ(numerics["ops"][0]["status"], "origin");
  EXPECT_EQ(numerics["ops"][0]["scope"], "Adam.step > train.py:41");
  EXPECT_EQ(numerics["ops"][0]["line"], "train.py:41");
  EXPECT_EQ(numerics["ops"][0]["call"], "model.m0");
  EXPECT_TRUE(numerics["ops"][0]["input"].is_null());
  EXPECT_EQ(numerics["ops"][1]["status"], "receiver");
  EXPECT_THAT(std::string(numerics["ops"][1]["input"]["a"]), StartsWith("op 1 aten::"));
  EXPECT_EQ(numerics["modules"][0]["origins"], 1);
}

TEST_F(DiffNumericsTest, TheyMayBeIgnoredOrAloneCount) {
  EXPECT_EQ(diff({"--ignore", "numerics"}).out, "equal\n");
  EXPECT_EQ(diff({"--fail-on", "structure"}).exit_code, 0);
  EXPECT_EQ(diff({"--fail-on", "numerics"}).exit_code, 1);
}

TEST_F(DiffNumericsTest, WhoAsksForThemAloneIsToldThatThereAreNone) {
  write(other_, {{3, {}, /*has_digests=*/false}});
  const Outcome asked = diff({"--fail-on", "numerics,ledger"});
  EXPECT_EQ(asked.exit_code, 2);
  EXPECT_THAT(asked.err, HasSubstr("--fail-on asks for ledger and numerics, which the traces do "
                                   "not hold on both sides"));
  EXPECT_EQ(diff({"--fail-on", "numerics", "--ignore", "numerics"}).exit_code, 0);
}

TEST_F(DiffNumericsTest, TimingsAndHostAreNamesOfSectionsToo) {
  EXPECT_EQ(diff({"--ignore", "timings,host,numerics"}).exit_code, 0);
  EXPECT_EQ(diff({"--ignore", "times"}).exit_code, 2);
}

TEST_F(DiffNumericsTest, WithoutDigestsAWordIsSaid) {
  write(other_, {{3, {}, /*has_digests=*/false}});
  EXPECT_EQ(diff().exit_code, 0);
  EXPECT_EQ(diff().out,
            "equal\n\nresults of ops were not compared: the second has no digests of its ops; "
            "record the same calls in both, with digests (Options::record and Options::digests; in "
            "Python record= and digests=True)\n");
  const auto json = nlohmann::json::parse(diff({"--json"}).out);
  const auto& numerics = json["steps"][0]["recordings"][0]["numerics"];
  EXPECT_TRUE(numerics["compared"].is_null());
  EXPECT_EQ(numerics["not_compared"], "the second has no digests of its ops");
}

TEST_F(DiffNumericsTest, RecordingsThatWereNotComparedAreCounted) {
  write(path_, {{3}, {4}});
  write(other_, {{3}, {4, {}, /*has_digests=*/false}});
  EXPECT_THAT(diff().out, HasSubstr("results of ops were compared in 1 of 2 recordings: the second "
                                    "has no digests of its ops; "));
}

TEST_F(DiffNumericsTest, WhatAControlShowsTooIsNoise) {
  write(again_, {{3, {.flipped = {1}}}});
  const Outcome outcome = diff({"--control", again_});
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_THAT(outcome.out, StartsWith("equal but for numerics ("));
  EXPECT_THAT(outcome.out, HasSubstr(" noisy)\n"));
  EXPECT_THAT(outcome.out, Not(HasSubstr("origin")));
  EXPECT_THAT(diff({"--control", again_, "--all"}).out, HasSubstr("noisy     op 1 aten::"));
  const auto json = nlohmann::json::parse(diff({"--control", again_, "--json"}).out);
  EXPECT_EQ(json["counts"]["numerics"], 0);
  EXPECT_EQ(json["steps"][0]["recordings"][0]["numerics"]["ops"][0]["noisy"], true);
}

TEST_F(DiffNumericsTest, SeveralControlsAddUp) {
  write(again_, {{3}});
  const std::filesystem::path third = folder_ / "third.tape";
  write(third, {{3, {.flipped = {1}}}});
  EXPECT_EQ(diff({"--control", again_}).exit_code, 1);
  EXPECT_EQ(diff({"--control", again_, "--control", third}).exit_code, 0);
}

TEST_F(DiffNumericsTest, CallsThatDifferInAControlTooAreNoise) {
  write(other_, {{3}});
  write(again_, {{3}});
  write_ledger(path_);
  write_ledger(other_, 7);
  write_ledger(again_, 9);
  EXPECT_THAT(diff().out, HasSubstr("  train: 20 calls compared, 14 differ\n    call 7: "));
  const Outcome outcome = diff({"--control", again_});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.out, HasSubstr("  train: 20 calls compared, 14 differ, 12 of them noise\n"));
  EXPECT_THAT(outcome.out, StartsWith("differ: ledger (train: call 7: results, parameters)\n"));
  write_ledger(again_, 7);
  EXPECT_THAT(diff({"--control", again_}).out, StartsWith("equal but for ledger (14 noisy)\n"));
  EXPECT_EQ(diff({"--control", again_}).exit_code, 0);
}

TEST_F(DiffNumericsTest, ControlsOfFoldersAreFolders) {
  for (const char* run : {"runA", "runB", "again"}) {
    std::filesystem::create_directory(folder_ / run);
    write(folder_ / run / "rank0.tape", {{3, {.flipped = {run[0] == 'r' ? 0U : 1U}}}});
  }
  write(folder_ / "runA" / "rank0.tape", {{3}});
  write(folder_ / "again" / "rank0.tape", {{3, {.flipped = {0}}}});
  const std::filesystem::path a = folder_ / "runA";
  const std::filesystem::path b = folder_ / "runB";
  EXPECT_EQ(steptape({"diff", a, b}).exit_code, 1);
  EXPECT_EQ(steptape({"diff", a, b, "--control", folder_ / "again"}).exit_code, 0);
  const Outcome mixed = steptape({"diff", a, b, "--control", path_});
  EXPECT_EQ(mixed.exit_code, 2);
  EXPECT_THAT(mixed.err, HasSubstr("give all of one kind"));
}

}  // namespace
}  // namespace steptape::tools
