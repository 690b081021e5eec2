#include <gmock/gmock.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/tools/recorded_runs.h"

namespace steptape::tools {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

/// Traces and ledgers of three ranks; rank 2 leaves others from some call on.
class RanksTest : public RecordedRunsTest {
 protected:
  RanksTest() {
    for (const std::string rank : {"0", "1", "2"}) {
      files_.push_back(folder_ / ("ranks.rank" + rank + ".tape"));
      write(files_.back(), {{2}, {3}});
    }
  }

  void write_ledgers(std::uint64_t first_other) const {
    for (std::size_t i = 0; i < files_.size(); ++i)
      write_ledger(files_[i], i == 2 ? first_other : 21);
  }
  Outcome run(const std::string& command, const std::vector<std::string>& options = {}) const {
    std::vector<std::string> words{command, "--ranks", files_[0], files_[1], files_[2]};
    words.insert(words.end(), options.begin(), options.end());
    return steptape(words);
  }

  std::vector<std::filesystem::path> files_;
};

TEST_F(RanksTest, AgreeByOpsAndLedgers) {
  EXPECT_EQ(run("diff").out, "agree: 3 ranks\n\nstep train\n  ops      of calls 2, 3\n");
  EXPECT_EQ(run("diff").exit_code, 0);
  write_ledgers(21);
  EXPECT_THAT(run("diff").out,
              HasSubstr("20 calls on several ranks: parameters and module buffers agree\n"));
  EXPECT_EQ(run("diff").exit_code, 0);
}

TEST_F(RanksTest, PartInTheFirstCallOfALedger) {
  write_ledgers(9);
  const Outcome outcome = run("diff");
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.out, StartsWith("part: train: call 9: ranks 0 1 | 2\n"));
  EXPECT_THAT(outcome.out, HasSubstr("steptape record --at 9 --digests"));
  const auto json = nlohmann::json::parse(run("diff", {"--json"}).out);
  EXPECT_EQ(json["agree"], false);
  EXPECT_EQ(json["steps"][0]["call"], 9);
  EXPECT_EQ(json["steps"][0]["ledgers"]["first"]["groups"], (nlohmann::json{{0, 1}, {2}}));
}

TEST_F(RanksTest, WhatDiffersAtEntryIsTold) {
  write(files_[2], {{2}, {3, {.entered = {{"model.m0.weight", 1}}}}});
  const Outcome outcome = run("diff");
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.out,
              StartsWith("part: train: call 3: ranks 0 1 | 2: model.m0.weight at entry\n"));
  EXPECT_THAT(outcome.out,
              HasSubstr("rank 0 beside 2: model.m0.weight differ when the call begins\n"));
}

TEST_F(RanksTest, TheWayFromTheInputIsTold) {
  write(files_[2], {{2}, {3, {.entered = {{"inputs[0]", 1}}}}});
  const Outcome outcome = run("diff");
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(
      outcome.out,
      StartsWith("part: train: call 3: ranks 0 1 | 2: model.m0.weight, model.m1.weight: op 8 "
                 "aten::add_.Tensor: from inputs[0] at entry, without a collective\n"));
  EXPECT_THAT(outcome.out,
              HasSubstr("    op 1 aten::cat in model.m0, Adam.step > train.py:41: other "
                        "differs: inputs[0] at entry\n"
                        "    no collective is on the way\n"));
}

TEST_F(RanksTest, WithoutDigestsNothingIsCompared) {
  for (const auto& file : files_) write(file, {{.number = 3, .has_digests = false}});
  EXPECT_EQ(run("diff").exit_code, 2);
  EXPECT_THAT(run("diff").out, StartsWith("not compared: "));
}

TEST_F(RanksTest, LedgersAreShownSideBySide) {
  write_ledgers(9);
  const Outcome outcome = run("ledger", {"--tail", "2"});
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_THAT(outcome.out, HasSubstr("       20  equal           0 1 | 2         -"));
  EXPECT_THAT(outcome.out, Not(HasSubstr("       18  ")));
  EXPECT_THAT(outcome.out,
              HasSubstr("  parameters  differ in 12 calls, first in call 9: 0 1 | 2\n"));
  const auto json = nlohmann::json::parse(run("ledger", {"--json"}).out);
  EXPECT_EQ(json["steps"][0]["calls"][8]["parameters"], (nlohmann::json{0, 0, 1}));
}

TEST_F(RanksTest, FilesAreOfTwoRanksOrMore) {
  const auto error_of = [&](std::vector<std::string> files) {
    files.insert(files.begin(), {"diff", "--ranks"});
    const Outcome outcome = steptape(files);
    EXPECT_EQ(outcome.exit_code, 2);
    return outcome.err;
  };
  EXPECT_THAT(error_of({files_[0]}), HasSubstr("give the files of two or more"));
  EXPECT_THAT(error_of({files_[0], files_[0]}), HasSubstr("of one rank"));
  EXPECT_THAT(error_of({files_[0], path_}), HasSubstr("does not tell it"));
  std::filesystem::remove(path_);
  EXPECT_THAT(steptape({"diff", "--ranks", folder_}).out, StartsWith("agree: 3 ranks\n"));
}

TEST_F(RanksTest, TwoFilesAreStillAskedForWithoutRanks) {
  EXPECT_NE(steptape({"diff"}).exit_code, 0);
  EXPECT_NE(steptape({"diff", files_[0]}).exit_code, 0);
  EXPECT_NE(steptape({"ledger"}).exit_code, 0);
  EXPECT_NE(steptape({"diff", files_[0], files_[1], "--buffers"}).exit_code, 0);
}

}  // namespace
}  // namespace steptape::tools
