#include "diff/ledger/ledger_diff.h"

#include <gtest/gtest.h>

#include "diff/ledger/times.h"

namespace steptape::diff {
namespace {

trace::LedgerLine line(std::uint64_t call, std::uint32_t microseconds = 100,
                       trace::CallOutcome outcome = trace::CallOutcome::kReplayed) {
  trace::LedgerLine line;
  line.call = call;
  line.outcome = outcome;
  line.microseconds = microseconds;
  line.inputs = call;
  line.results = call + 1;
  line.parameters = call + 2;
  return line;
}

trace::Ledger ledger(std::uint64_t calls) {
  trace::Ledger ledger{{}, {"train"}, {}};
  for (std::uint64_t call = 1; call <= calls; ++call) ledger.lines.push_back(line(call));
  return ledger;
}

TEST(TimesTest, AreNumbersThatWereMeasured) {
  EXPECT_EQ(times_of({}), Times());
  EXPECT_EQ(times_of({7}), (Times{1, 7, 7, 7, 7, 7, 7}));
  EXPECT_EQ(times_of({50, 10, 30, 20, 40}), (Times{5, 10, 20, 30, 40, 40, 50}));
}

TEST(CallTimesTest, DifferWhereEachMedianLiesOutsideTheOthersMiddleHalf) {
  const auto differ = [](const Times& a, const Times& b) {
    return CallTimeDifference{{a, b}}.differs();
  };
  const Times slow{100, 90, 140, 150, 160, 170, 180};
  EXPECT_TRUE(differ({100, 80, 90, 100, 110, 120, 160}, slow));
  EXPECT_TRUE(differ(slow, {100, 80, 90, 100, 110, 120, 160}));
  EXPECT_FALSE(differ({100, 80, 90, 100, 151, 200, 210}, slow)) << "it wavers that much by itself";
  EXPECT_FALSE(differ({7, 80, 90, 100, 110, 120, 160}, slow)) << "too few calls";
  EXPECT_FALSE(differ({100, 5, 5, 5, 5, 5, 5}, {100, 6, 6, 6, 6, 6, 6})) << "a microsecond";
}

TEST(RankCallsTest, SayWhichRanksLeftTheSame) {
  const trace::Ledger a = ledger(4);
  trace::Ledger b = a;
  trace::Ledger c = ledger(3);
  b.lines[1].parameters = c.lines[1].parameters = 100;
  c.lines[2].parameters = 0;
  c.lines.push_back(line(7));
  const auto calls = calls_of_ranks(std::vector<const trace::Ledger*>{&a, &b, &c}, "train");
  ASSERT_EQ(calls.size(), 4u) << "the seventh is one rank's alone";
  const auto parameters = [&](std::size_t i) { return calls[i].of(CallPart::kParameters); };
  using Groups = std::vector<std::size_t>;
  EXPECT_EQ(parameters(0), (Groups{0, 0, 0}));
  EXPECT_EQ(parameters(1), (Groups{0, 1, 1}));
  EXPECT_TRUE(calls[1].differs(CallPart::kParameters));
  EXPECT_FALSE(calls[1].differs(CallPart::kInputs));
  EXPECT_EQ(parameters(2), (Groups{0, 0, RankCall::kNone}));
  EXPECT_FALSE(calls[2].differs(CallPart::kParameters));
  EXPECT_EQ(calls[3].lines[2], nullptr);
  EXPECT_EQ(parameters(3), (Groups{0, 0, RankCall::kNone}));
}

TEST(LedgerSummaryTest, CountsOutcomesAndVerdicts) {
  trace::Ledger some = ledger(6);
  some.steps.emplace_back("eval");
  some.lines[0].outcome = trace::CallOutcome::kRecorded;
  some.lines[3].outcome = trace::CallOutcome::kEager;
  some.lines[3].verdict = GuardKind::kShape;
  some.lines[5].step = 1;
  const LedgerSummary all = summarize(some);
  EXPECT_EQ(all.calls, 6u);
  EXPECT_EQ(all.replayed, 4u);
  ASSERT_EQ(all.outcomes.size(), 3u);
  EXPECT_EQ(all.outcomes[1].outcome, trace::CallOutcome::kReplayed);
  EXPECT_EQ(all.outcomes[1].times.count, 4u);
  ASSERT_EQ(all.verdicts.size(), 1u);
  EXPECT_EQ(all.verdicts[0].kind, GuardKind::kShape);
  EXPECT_EQ(summarize(some, "eval").calls, 1u);
}

TEST(LedgerDiffTest, EqualLedgersAreEqual) {
  const LedgerDiff found = compare(ledger(9), ledger(9));
  EXPECT_EQ(found.differing(), 0u);
  EXPECT_EQ(found.steps.at(0).compared, 9u);
  EXPECT_EQ(found.verdict(), "");
}

TEST(LedgerDiffTest, TheFirstCallThatDiffersIsNamed) {
  trace::Ledger other = ledger(9);
  for (std::size_t i = 4; i < 9; ++i) other.lines[i].results += 7;
  other.lines[4].parameters += 7;
  const LedgerDiff found = compare(ledger(9), other);
  EXPECT_EQ(found.verdict(), "train: call 5: results, parameters");
  EXPECT_EQ(found.differing(), 5u);
  const CallDifference& first = found.steps[0].first.value();
  EXPECT_EQ(first.words_of(PartStatus::kEqual), "inputs");
  EXPECT_EQ(first.words_of(PartStatus::kNotTaken), "gradients, generators");
  EXPECT_EQ(first.origin(), "it begins in this call");
}

TEST(LedgerDiffTest, InWhichStateTheFirstCallBeganIsNotKnown) {
  trace::Ledger other = ledger(9);
  other.lines[0].results += 7;
  other.lines[1].results += 7;
  EXPECT_EQ(compare(ledger(9), other).steps[0].first->origin(),
            "it begins in this call or before it");
  trace::Ledger resumed = ledger(9);
  resumed.lines.erase(resumed.lines.begin(), resumed.lines.begin() + 1);
  EXPECT_EQ(compare(resumed, other).steps[0].first->origin(),
            "it begins in this call or before it");
  other = ledger(9);
  other.lines[1].results += 7;
  EXPECT_EQ(compare(ledger(9), other).steps[0].first->origin(), "it begins in this call");
}

TEST(LedgerDiffTest, WhatCameWithTheInputsIsTold) {
  trace::Ledger other = ledger(9);
  other.lines[4].inputs += 7;
  EXPECT_EQ(compare(ledger(9), other).steps[0].first->origin(), "it came with the inputs");
  other.lines[4].inputs = 0;
  other.lines[4].results += 7;
  EXPECT_EQ(compare(ledger(9), other).steps[0].first->origin(), "inputs were not compared");
}

TEST(LedgerDiffTest, OfSeveralStepsTheCallThatCameFirstIsNamed) {
  trace::Ledger a{{}, {"train", "eval"}, {}};
  for (std::uint64_t call = 1; call <= 4; ++call) {
    a.lines.push_back(line(call));
    a.lines.push_back(line(call));
    a.lines.back().step = 1;
  }
  trace::Ledger b = a;
  b.lines[3].results += 7;  // eval, call 2
  b.lines[4].results += 7;  // train, call 3
  const LedgerDiff found = compare(a, b);
  EXPECT_EQ(found.verdict(), "eval: call 2: results");
  EXPECT_EQ(found.steps[0].first->origin(), "it begins in this call or before it");
  EXPECT_EQ(found.steps[1].first->origin(), "it begins in this call");
  EXPECT_EQ(compare(a, b, "train").verdict(), "train: call 3: results");
}

TEST(LedgerDiffTest, CallsOfOneSideDifferAndAreCounted) {
  const LedgerDiff shorter = compare(ledger(9), ledger(7));
  EXPECT_EQ(shorter.steps[0].compared, 7u);
  EXPECT_EQ(shorter.steps[0].only_in_a, 2u);
  EXPECT_EQ(shorter.verdict(), "train: 2 calls only in the first");
  EXPECT_EQ(compare(ledger(7), ledger(8)).verdict(), "train: 1 call only in the second");
  trace::Ledger other = ledger(2);
  other.steps[0] = "eval";
  EXPECT_EQ(compare(ledger(3), other).differing(), 5u);
}

TEST(LedgerDiffTest, OfTwoLinesOfOneCallTheLaterHolds) {
  trace::Ledger again = ledger(9);
  again.lines[6].results += 7;
  again.lines.push_back(line(7));
  EXPECT_EQ(compare(ledger(9), again).differing(), 0u);
  EXPECT_EQ(compare(again, ledger(9)).differing(), 0u);
}

TEST(LedgerDiffTest, OutcomesVariantsAndDigestsOfOneSideDoNotDiffer) {
  trace::Ledger other = ledger(9);
  other.lines[4].outcome = trace::CallOutcome::kAudit;
  other.lines[5].variant = 3;
  other.lines[6].gradients = 7;
  other.lines[7].inputs = other.lines[7].results = other.lines[7].parameters = 0;
  const LedgerDiff found = compare(ledger(9), other);
  EXPECT_EQ(found.differing(), 0u);
  EXPECT_EQ(found.steps[0].without_digests, 1u);
}

TEST(LedgerDiffTest, ACallIsNoiseWhereAllThatDiffersDiffersInAControlToo) {
  trace::Ledger other = ledger(9);
  for (const std::size_t at : {3U, 4U, 5U}) other.lines[at].results += 7;
  other.lines[4].parameters += 7;
  trace::Ledger control = ledger(9);
  for (const std::size_t at : {3U, 4U, 6U}) control.lines[at].results += 9;
  const LedgerDiff found = compare(ledger(9), other, {}, std::vector{control});
  EXPECT_EQ(found.steps[0].differing, 3u);
  EXPECT_EQ(found.noisy(), 1u) << "call 4: of call 5 the parameters are no noise";
  EXPECT_EQ(found.differing(), 2u);
  EXPECT_EQ(found.steps[0].first->call, 5u);
  EXPECT_EQ(compare(ledger(9), control, {}, std::vector{ledger(9), control}).differing(), 0u);
}

TEST(LedgerDiffTest, AControlThatLacksTheCallOrTheStepSaysNothing) {
  trace::Ledger other = ledger(9);
  other.lines[8].results += 7;
  trace::Ledger renamed = ledger(9);
  renamed.steps[0] = "eval";
  EXPECT_EQ(compare(ledger(9), other, {}, std::vector{ledger(4), renamed}).noisy(), 0u);
}

TEST(LedgerDiffTest, TimesAreComparedByOutcome) {
  trace::Ledger slow = ledger(9);
  for (trace::LedgerLine& line : slow.lines) line.microseconds = 150;
  const LedgerDiff found = compare(ledger(9), slow);
  EXPECT_EQ(found.differing(), 0u);
  EXPECT_EQ(found.differing_times(), 1u);
  EXPECT_EQ(found.steps[0].times.at(0).b.median, 150u);
}

}  // namespace
}  // namespace steptape::diff
