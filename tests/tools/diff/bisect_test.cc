#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "storage/ledger/ledger_reader.h"
#include "storage/trace/reader.h"
#include "storage/trace/writer.h"
#include "tests/tools/recorded_runs.h"

namespace steptape::tools {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;

/// run.tape and other.tape, which part in call 7 by their ledgers.
class BisectTest : public RecordedRunsTest {
 protected:
  BisectTest() {
    write(other_, {{3}});
    write_ledger(path_);
    write_ledger(other_, 7);
  }
  void remove_ledgers() const {
    for (const auto& path : {path_, other_}) {
      std::filesystem::remove(storage::ledger_beside(path));
    }
  }
  Outcome bisect(std::vector<std::string> options = {}) const {
    options.insert(options.begin(), {"bisect", path_, other_});
    return steptape(options);
  }
};

TEST_F(BisectTest, EqualRunsAreEqual) {
  write_ledger(other_);
  EXPECT_EQ(bisect().out, "equal\n");
  EXPECT_EQ(bisect().exit_code, 0);
  remove_ledgers();
  EXPECT_EQ(bisect().out, "equal\n");
}

TEST_F(BisectTest, ACallThatWasNotRecordedIsToBeRecorded) {
  const Outcome outcome = bisect();
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_EQ(outcome.out,
            "differ: train: call 7: results, parameters\n"
            "  inputs equal: it begins in this call\n"
            "  nearest call up to it that both recorded: 3\n"
            "record call 7 in both, with digests:\n"
            "  a       steptape record --at 7 --digests -- COMMAND\n"
            "  b       steptape record --at 7 --digests -- COMMAND\n"
            "or in the program:\n"
            "  C++     steptape::Options{.record = {.at = {7}}, .digests = true}\n"
            "  Python  steptape.wrap(..., record={\"at\": [7]}, digests=True)\n"
            "then look again:\n"
            "  steptape diff " +
                path_.string() + " " + other_.string() + " --step train --fail-on numerics\n");
  const auto json = nlohmann::json::parse(bisect({"--json"}).out);
  EXPECT_EQ(json["differ"], true);
  EXPECT_EQ(json["call"], 7);
  EXPECT_EQ(json["is_exact"], true);
  EXPECT_EQ(json["nearest_recorded_call"], 3);
  EXPECT_EQ(json["ledger"]["results"], "differs");
  EXPECT_EQ(json["record"]["call"], 7);
  EXPECT_TRUE(json["numerics"].is_null());
}

TEST_F(BisectTest, TheCommandsOfTheRunsRecordTheCall) {
  const auto say = [this](const std::filesystem::path& path, std::vector<trace::Fact> run) {
    trace::Trace trace = storage::read(path);
    trace.run = std::move(run);
    storage::write(trace, path);
  };
  say(path_, {{"command", "python train.py --seed 3"},
              {"folder", std::filesystem::current_path().string()}});
  say(other_, {{"command", "./train 'a b'"}, {"folder", "/home/other run"}});
  const std::string out = bisect().out;
  EXPECT_THAT(out, HasSubstr("  a       steptape record --at 7 --digests -- python train.py "
                             "--seed 3\n"));
  EXPECT_THAT(out, HasSubstr("  b       cd '/home/other run' && steptape record --at 7 --digests "
                             "-- ./train 'a b'\n"));
  const auto json = nlohmann::json::parse(bisect({"--json"}).out);
  EXPECT_EQ(json["record"]["command_a"],
            "steptape record --at 7 --digests -- python train.py --seed 3");
  say(path_, {{"command", "python -c 'import train\ntrain.run()'"}});
  EXPECT_THAT(bisect().out, HasSubstr("  a       steptape record --at 7 --digests -- COMMAND\n"));
  say(other_, {{"command", "python train.py"}, {"rank", "0"}});
  EXPECT_THAT(bisect().out, HasSubstr("  b       steptape record --at 7 --digests -- COMMAND\n"));
}

TEST_F(BisectTest, TheOpOfARecordedCallIsNamed) {
  write(path_, {{3}, {7}});
  write(other_, {{3}, {7, {.flipped = {1}}}});
  const Outcome outcome = bisect();
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_EQ(outcome.out, golden("bisect.txt"));
  const auto json = nlohmann::json::parse(bisect({"--json"}).out);
  EXPECT_EQ(json["numerics"]["ops"][0]["a"], 1);
  EXPECT_TRUE(json["record"].is_null());
}

TEST_F(BisectTest, ACallWhoseOpsAreEqualSaysSo) {
  write(path_, {{7}});
  write(other_, {{7}});
  EXPECT_THAT(bisect().out, HasSubstr(" left the same on both sides: what differs came from "
                                      "elsewhere\n"));
}

TEST_F(BisectTest, WithoutLedgersRecordingsHalveTheWay) {
  remove_ledgers();
  write(path_, {{4}, {16}});
  write(other_, {{4}, {16, {.entered = {{"model.m0.weight", 1}}}}});
  const Outcome outcome = bisect();
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.out, StartsWith("differ: train: after call 4, at the latest in call 16\n"));
  EXPECT_THAT(outcome.out, HasSubstr("record call 10 in both, with digests:\n"));
  const auto json = nlohmann::json::parse(bisect({"--json"}).out);
  EXPECT_EQ(json["is_exact"], false);
  EXPECT_EQ(json["last_equal_call"], 4);
  EXPECT_EQ(json["record"]["call"], 10);
}

TEST_F(BisectTest, WithoutLedgersAnOriginIsTheEnd) {
  remove_ledgers();
  write(path_, {{4}, {16}});
  write(other_, {{4}, {16, {.flipped = {1}}}});
  EXPECT_THAT(bisect().out, StartsWith("differ: train: call 16: origin op 1 aten::"));
  EXPECT_THAT(bisect().out, Not(HasSubstr("record call")));
}

TEST_F(BisectTest, EqualLedgersAndOtherOpsDiffer) {
  write_ledger(other_);
  write(other_, {{3, {.flipped = {1}}}});
  EXPECT_EQ(bisect().exit_code, 1);
  EXPECT_THAT(bisect().out, StartsWith("differ: train: call 3: origin op 1 aten::"));
}

TEST_F(BisectTest, NoiseIsNoDifference) {
  write(again_, {{3}});
  write_ledger(again_, 7);
  EXPECT_EQ(bisect({"--control", again_}).out, "equal\n");
}

TEST_F(BisectTest, TwoLedgersAloneTellTheCall) {
  const Outcome outcome =
      steptape({"bisect", storage::ledger_beside(path_), storage::ledger_beside(other_)});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.out, StartsWith("differ: train: call 7: results, parameters\n"));
  EXPECT_THAT(outcome.out, HasSubstr("  no call up to it was recorded in both\n"));
  EXPECT_THAT(outcome.out, HasSubstr("  steptape diff " + path_.string() + " " + other_.string() +
                                     " --step train --fail-on numerics\n"));
}

TEST_F(BisectTest, WithNothingToGoByIsTrouble) {
  remove_ledgers();
  write(other_, {{3, {}, /*has_digests=*/false}});
  const Outcome outcome = bisect();
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_THAT(outcome.out, IsEmpty());
  EXPECT_THAT(outcome.err, HasSubstr("there is nothing to find the call by"));
  EXPECT_EQ(steptape({"bisect", path_, folder_ / "missing.tape"}).exit_code, 2);
}

TEST_F(BisectTest, RanksArePairedByName) {
  for (const char* run : {"runA", "runB"}) {
    std::filesystem::create_directory(folder_ / run);
    for (const char* rank : {"rank0.tape", "rank1.tape"}) {
      write(folder_ / run / rank, {{3}});
      write_ledger(folder_ / run / rank);
    }
  }
  write_ledger(folder_ / "runB" / "rank1.tape", 5);
  write(folder_ / "runB" / "rank2.tape", {{3}});
  const Outcome outcome = steptape({"bisect", folder_ / "runA", folder_ / "runB"});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.out, StartsWith("rank0.tape: equal\nrank1.tape: differ: train: call 5: "));
  EXPECT_THAT(outcome.out, HasSubstr("rank2.tape: differ: only in "));
  const auto json =
      nlohmann::json::parse(steptape({"bisect", folder_ / "runA", folder_ / "runB", "--json"}).out);
  EXPECT_EQ(json["traces"][1]["call"], 5);
  EXPECT_EQ(json["only_in_b"], nlohmann::json({"rank2.tape"}));
}

TEST_F(BisectTest, PathsAreQuotedForAShell) {
  const std::filesystem::path spaced = folder_ / "it's other.tape";
  write(spaced, {{3}});
  write_ledger(spaced, 7);
  EXPECT_THAT(steptape({"bisect", path_, spaced}).out,
              HasSubstr("'\\''s other.tape' --step train"));
}

}  // namespace
}  // namespace steptape::tools
