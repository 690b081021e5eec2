#include <gmock/gmock.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "storage/ledger/ledger_reader.h"
#include "storage/ledger/ledger_writer.h"
#include "tests/tools/process.h"

namespace steptape::tools {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;

/// run.tape.ledger beside run.tape: nine replays and one call that fell back.
class LedgerTest : public ToolTest {
 protected:
  LedgerTest() { write("train"); }

  void write(std::string_view name) const {
    std::filesystem::remove(ledger_);
    storage::LedgerWriter writer(ledger_, {1, 2});
    for (std::uint64_t call = 1; call <= 10; ++call) {
      trace::LedgerLine line;
      line.step = writer.step(name);
      line.call = call;
      line.outcome = call == 4 ? trace::CallOutcome::kEager : trace::CallOutcome::kReplayed;
      line.verdict = call == 4 ? GuardKind::kShape : GuardKind::kNone;
      if (call != 4) line.variant = 0;
      line.results = call;
      line.microseconds = static_cast<std::uint32_t>(100 + call);
      writer.append(line);
    }
  }
  Outcome ledger(std::vector<std::string> options = {}) const {
    options.insert(options.begin(), {"ledger", ledger_});
    return steptape(options);
  }
  void cut_ledger(std::uintmax_t bytes) const { std::filesystem::resize_file(ledger_, bytes); }

  std::filesystem::path ledger_ = storage::ledger_beside(path_);
};

TEST_F(LedgerTest, ATableAndASummary) {
  const Outcome outcome = ledger();
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_THAT(outcome.err, IsEmpty());
  EXPECT_EQ(std::ranges::count(outcome.out, '\n'), 1 + 10 + 1 + 4);
  EXPECT_THAT(outcome.out, StartsWith("     call  outcome"));
  EXPECT_THAT(outcome.out, HasSubstr("10 calls, 90.0 % replayed\n"));
  EXPECT_THAT(outcome.out, HasSubstr("replayed         9  median 106 µs, 95 % within 109 µs\n"));
  EXPECT_THAT(outcome.out, HasSubstr("fell back for shape: 1\n"));
  EXPECT_EQ(steptape({"ledger", path_}).out, outcome.out) << "the trace finds its ledger";
}

TEST_F(LedgerTest, TheTailAloneAndTheSummaryOfAll) {
  const Outcome outcome = ledger({"--tail", "2"});
  EXPECT_EQ(std::ranges::count(outcome.out, '\n'), 1 + 2 + 1 + 4);
  EXPECT_THAT(outcome.out, HasSubstr("10 calls"));
  EXPECT_THAT(ledger({"--tail", "0"}).out, StartsWith("10 calls"));
}

TEST_F(LedgerTest, JsonHoldsLinesAndSummary) {
  const auto json = nlohmann::json::parse(ledger({"--json", "--tail", "7"}).out);
  EXPECT_EQ(json["steps"], nlohmann::json({"train"}));
  EXPECT_EQ(json["closed"], true);
  EXPECT_EQ(json["run"], "00000000000000020000000000000001");
  EXPECT_EQ(json["summary"]["outcomes"]["replayed"]["median_us"], 106);
  EXPECT_EQ(json["summary"]["verdicts"]["shape"], 1);
  EXPECT_EQ(json["lines"].size(), 7u);
  EXPECT_EQ(json["lines"][0]["verdict"], "shape");
  EXPECT_EQ(json["lines"][0]["variant"], nullptr);
  EXPECT_EQ(json["lines"][1]["results"], "0000000000000005");
  EXPECT_EQ(json["lines"][1]["inputs"], nullptr);
}

TEST_F(LedgerTest, AStepThatNobodyHasIsTrouble) {
  EXPECT_EQ(ledger({"--step", "train"}).exit_code, 0);
  EXPECT_EQ(ledger({"--step", "eval"}).exit_code, 2);
  EXPECT_THAT(ledger({"--step", "eval"}).err, HasSubstr("is called `eval`"));
}

TEST_F(LedgerTest, ATornTailIsToldAndTheRestShown) {
  cut_ledger(64 * 8 + 13);
  const Outcome outcome = ledger();
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_THAT(outcome.out, HasSubstr("6 calls"));
  EXPECT_THAT(outcome.err, HasSubstr("the last 13 B were being written"));
}

TEST_F(LedgerTest, ADamagedFileIsTroubleAndWhatIsLeftCanBeShown) {
  std::filesystem::rename(ledger_, path_);
  flip(64 * 5 + 9);
  std::filesystem::rename(path_, ledger_);
  EXPECT_EQ(ledger().exit_code, 2);
  EXPECT_THAT(ledger().err, StartsWith("steptape: data_loss: "));
  const Outcome outcome = ledger({"--partial"});
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_THAT(outcome.out, HasSubstr("3 calls"));
  EXPECT_THAT(outcome.err, HasSubstr("record 5 at offset 320 is damaged"));
}

TEST_F(LedgerTest, WhatIsNoLedgerIsTrouble) {
  std::filesystem::remove(ledger_);
  EXPECT_EQ(steptape({"ledger", path_}).exit_code, 2);
  EXPECT_THAT(steptape({"ledger", path_}).err, HasSubstr("is not a ledger"));
  EXPECT_EQ(ledger().exit_code, 2);
  EXPECT_THAT(ledger().err, HasSubstr("No such file or directory"));
}

TEST_F(LedgerTest, NamesInALedgerCannotMoveTheCursor) {
  write("\x1b[2J");
  EXPECT_THAT(ledger().out, Not(HasSubstr("\x1b")));
  EXPECT_THAT(ledger().out, HasSubstr("\\x1b[2J"));
  EXPECT_THAT(ledger({"--json"}).out, Not(HasSubstr("\x1b")));
}

}  // namespace
}  // namespace steptape::tools
