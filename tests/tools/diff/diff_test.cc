#include <fmt/format.h>
#include <gmock/gmock.h>
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "storage/ledger/ledger_reader.h"
#include "storage/ledger/ledger_writer.h"
#include "storage/trace/writer.h"
#include "tests/tools/process.h"
#include "tests/trace/samples.h"

namespace steptape::tools {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;

/// What is said of traces without digests of their ops.
const std::string kNote =
    "\nresults of ops were not compared: neither has digests of its ops; record the same calls in "
    "both, with digests (Options::record and Options::digests; in Python record= and "
    "digests=True)\n";

/// run.tape, and other.tape beside it.
class DiffTest : public ToolTest {
 protected:
  DiffTest() { write_other(test::train_trace()); }

  void write_other(const trace::Trace& trace) const { storage::write(trace, other_); }
  Outcome diff(std::vector<std::string> options = {}, const Environment& environment = {}) const {
    options.insert(options.begin(), {"diff", path_, other_});
    return steptape(options, environment);
  }
  /// The sample with an op less, an op more, another scalar and another hyperparameter.
  static trace::Trace changed() {
    trace::Trace trace = test::train_trace();
    trace::Recording& recording = trace.steps[0].recordings[0];
    recording.ops[1] = recording.ops[0];
    recording.ops[1].module = 0;
    recording.ops[1].scope = trace::kNone;
    recording.ops[4].inputs[2] = {trace::Real{-0.2}};
    recording.optimizers[0].groups[0].hyperparameters[0].value = {trace::Real{0.2}};
    return trace;
  }
  /// What the tool writes to a terminal.
  std::string on_terminal(std::vector<std::string> options, const Environment& environment) const;

  std::filesystem::path other_ = folder_ / "other.tape";
};

std::string DiffTest::on_terminal(std::vector<std::string> options,
                                  const Environment& environment) const {
  options.insert(options.begin(), {STEPTAPE_TOOL, "diff", path_, other_});
  std::vector<char*> argv;
  for (std::string& option : options) argv.push_back(option.data());
  argv.push_back(nullptr);
  int terminal = -1;
  const pid_t child = ::forkpty(&terminal, nullptr, nullptr, nullptr);
  if (child == 0) {
    ::unsetenv("NO_COLOR");
    for (const auto& [name, value] : environment) ::setenv(name.c_str(), value.c_str(), 1);
    ::execv(argv[0], argv.data());
    ::_exit(127);
  }
  std::string out;
  char bytes[4096];
  for (ssize_t got = 0; (got = ::read(terminal, bytes, sizeof bytes)) > 0;) {
    out.append(bytes, static_cast<std::size_t>(got));
  }
  ::close(terminal);
  ::waitpid(child, nullptr, 0);
  return out;
}

TEST_F(DiffTest, EqualTracesAreEqual) {
  const Outcome outcome = diff();
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_EQ(outcome.out, "equal\n" + kNote);
  EXPECT_THAT(outcome.err, IsEmpty());
}

TEST_F(DiffTest, DifferencesStandBySectionAndModule) {
  write_other(changed());
  const Outcome outcome = diff();
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_EQ(outcome.out, golden("diff.txt"));
}

TEST_F(DiffTest, StatCountsByModule) {
  write_other(changed());
  const Outcome outcome = diff({"--stat"});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_EQ(outcome.out, golden("diff_stat.txt"));
}

TEST_F(DiffTest, JsonHoldsEditsAndFindings) {
  write_other(changed());
  const Outcome outcome = diff({"--json"});
  EXPECT_EQ(outcome.exit_code, 1);
  const auto json = nlohmann::json::parse(outcome.out);
  EXPECT_EQ(json["version"], 1);
  EXPECT_EQ(json["differ"], true);
  EXPECT_EQ(json["counts"]["optimizer"], 1);
  const auto& recording = json["steps"][0]["recordings"][0];
  EXPECT_EQ(recording["findings"]["optimizer"][0]["path"], "optimizer.param_groups[0].lr");
  const auto& edit = recording["edits"].back();
  EXPECT_EQ(edit["kind"], "change");
  EXPECT_EQ(edit["matched_by"], "sequence");
  EXPECT_EQ(
      edit["changes"],
      nlohmann::json(
          {{{"aspect", "scalar"}, {"place", "alpha"}, {"expected", "-0.1"}, {"found", "-0.2"}}}));
}

TEST_F(DiffTest, WhatIsIgnoredIsNotTold) {
  write_other(changed());
  const Outcome outcome = diff({"--ignore", "structure,optimizer,memory"});
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_EQ(outcome.out, "equal\n" + kNote);
}

TEST_F(DiffTest, OnlyWhatFailsMakesTracesDiffer) {
  write_other(changed());
  const Outcome outcome = diff({"--fail-on", "modules,guards"});
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_THAT(outcome.out, StartsWith("equal but for structure ("));
  EXPECT_EQ(diff({"--fail-on", "optimizer"}).exit_code, 1);
}

TEST_F(DiffTest, CallsThatOneRunAloneRecordedAreNoDifference) {
  trace::Trace trace = test::train_trace();
  trace::Recording probe = trace.steps[0].recordings[0];
  probe.status = trace::Status::kProbe;
  for (probe.call = 20; probe.call < 30; ++probe.call) trace.steps[0].recordings.push_back(probe);
  write_other(trace);
  const Outcome outcome = diff();
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_THAT(outcome.out, HasSubstr("  recorded by the second run alone, and not compared: call "
                                     "20, 21, 22, 23, 24, 25, 26, 27 and 2 more\n"));
  EXPECT_THAT(steptape({"diff", other_, path_, "--all"}).out,
              HasSubstr("  recorded by the first run alone, and not compared: call 20, "));
  const auto json = nlohmann::json::parse(diff({"--json"}).out);
  EXPECT_EQ(json["steps"][0]["calls_only_in_b"].size(), 10u);
  EXPECT_EQ(json["counts"]["structure"], 0);
}

TEST_F(DiffTest, LinesOfTheProgramAreToldAndDoNotFail) {
  trace::Trace trace = test::train_trace();
  trace.steps[0].place = "train.cc:42";
  write_other(trace);
  EXPECT_THAT(diff().out, StartsWith("equal but for place (1)\n"));
  EXPECT_EQ(diff().exit_code, 0);
  EXPECT_EQ(diff({"--fail-on", "place"}).exit_code, 1);
  EXPECT_EQ(diff({"--ignore", "environment,place"}).out, "equal\n" + kNote);
  EXPECT_EQ(diff({"--ignore", "place,numerics"}).out, "equal\n");
}

TEST_F(DiffTest, AnUnknownSectionIsTrouble) {
  const Outcome outcome = diff({"--ignore", "weather"});
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("no section is called `weather`: there are environment, "));
  EXPECT_THAT(outcome.err, HasSubstr(", memory, place, time\n"));
}

TEST_F(DiffTest, AStepThatNobodyHasIsTrouble) {
  EXPECT_EQ(diff({"--step", "train"}).exit_code, 0);
  const Outcome outcome = diff({"--step", "eval"});
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("is called `eval`"));
}

TEST_F(DiffTest, ADamagedFileIsTroubleOnEitherSide) {
  flip(200);
  EXPECT_EQ(diff().exit_code, 2);
  EXPECT_THAT(diff().out, IsEmpty());
  EXPECT_THAT(diff().err, StartsWith("steptape: data_loss: "));
  EXPECT_EQ(steptape({"diff", other_, path_}).exit_code, 2);
  EXPECT_EQ(steptape({"diff", path_, path_}).exit_code, 2);
}

TEST_F(DiffTest, ACutFileIsTrouble) {
  cut(300);
  EXPECT_EQ(steptape({"diff", path_, path_}).exit_code, 2);
}

TEST_F(DiffTest, AFolderAndAFileAreTrouble) {
  EXPECT_EQ(steptape({"diff", path_, folder_}).exit_code, 2);
}

TEST_F(DiffTest, NamesInATraceCannotMoveTheCursor) {
  trace::Trace trace = changed();
  trace::Recording& recording = trace.steps[0].recordings[0];
  trace.environment[0].value = "\x1b[2J";
  trace.steps.push_back({"\x1b[2J", "", {}});
  recording.modules[0].path = "\x1b[2J";
  recording.operators[0].name = "\x1b[2J";
  recording.buffers[0].path = "\x1b[2J";
  recording.scopes[0] = "\x1b[2J";
  write_other(trace);
  for (const char* detail : {"--all", "--stat"}) {
    EXPECT_THAT(diff({detail}).out, Not(HasSubstr("\x1b"))) << detail;
    EXPECT_THAT(steptape({"diff", other_, path_, detail}).out, Not(HasSubstr("\x1b"))) << detail;
  }
  EXPECT_THAT(diff({"--all"}).out, HasSubstr("\\x1b[2J"));
}

TEST_F(DiffTest, ColoursAreForTerminalsOrWhereAskedFor) {
  EXPECT_THAT(diff().out, Not(HasSubstr("\x1b")));
  EXPECT_THAT(diff({"--color", "always"}, {{"NO_COLOR", "1"}}).out, HasSubstr("\x1b"));
  EXPECT_THAT(on_terminal({"--no-pager"}, {}), HasSubstr("\x1b"));
  EXPECT_THAT(on_terminal({"--no-pager"}, {{"NO_COLOR", "1"}}), Not(HasSubstr("\x1b")));
  EXPECT_THAT(on_terminal({"--no-pager", "--color", "never"}, {}), Not(HasSubstr("\x1b")));
}

TEST_F(DiffTest, ThePagerIsForTerminals) {
  const Environment pager = {{"PAGER", "sed s/^/paged:/"}};
  EXPECT_EQ(diff({}, pager).out, "equal\n" + kNote);
  EXPECT_THAT(on_terminal({"--color", "never"}, pager), HasSubstr("paged:equal"));
  EXPECT_THAT(on_terminal({"--color", "never", "--no-pager"}, pager), StartsWith("equal"));
  EXPECT_THAT(on_terminal({"--color", "never"}, {{"PAGER", "no-such-pager"}}), HasSubstr("equal"));
}

/// Equal traces, each with a ledger of 20 calls beside it.
class DiffLedgersTest : public DiffTest {
 protected:
  DiffLedgersTest() {
    write_ledger(path_, "train");
    write_ledger(other_, "train");
  }
  /// From call `first_other` on, results are others.
  static void write_ledger(const std::filesystem::path& trace, std::string_view step,
                           std::uint64_t first_other = 21, std::uint32_t microseconds = 100,
                           std::uint64_t calls = 20) {
    const std::filesystem::path path = storage::ledger_beside(trace);
    std::filesystem::remove(path);
    storage::LedgerWriter writer(path, {});
    for (std::uint64_t call = 1; call <= calls; ++call) {
      trace::LedgerLine line;
      line.step = writer.step(step);
      line.call = call;
      line.outcome = trace::CallOutcome::kReplayed;
      line.inputs = call;
      line.results = call < first_other ? call : call + 100;
      line.microseconds = microseconds;
      writer.append(line);
    }
  }
};

TEST_F(DiffLedgersTest, EqualLedgersAreToldBelowTheVerdict) {
  const Outcome outcome = diff();
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_EQ(outcome.out,
            "equal\n\nledger\n  train: 20 calls compared, 0 differ\n"
            "time\n  train replayed: 100 → 100 µs, middle half 100 to 100 → 100 to 100, of 20 and "
            "20 calls: within the noise\n" +
                kNote);
}

TEST_F(DiffLedgersTest, TheVerdictNamesTheFirstCallThatDiffers) {
  write_ledger(other_, "train", 7);
  const Outcome outcome = diff();
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.out, StartsWith("differ: ledger (train: call 7: results)\n"));
  EXPECT_THAT(outcome.out, HasSubstr("  train: 20 calls compared, 14 differ\n    call 7: results "
                                     "differ; inputs equal: it begins in this call\n"));
  const auto json = nlohmann::json::parse(diff({"--json"}).out);
  EXPECT_EQ(json["counts"]["ledger"], 14);
  EXPECT_EQ(json["ledger"]["verdict"], "train: call 7: results");
  EXPECT_EQ(json["ledger"]["steps"][0]["first"]["inputs"], "equal");
  EXPECT_EQ(diff({"--ignore", "ledger,time"}).out, "equal\n" + kNote);
}

TEST_F(DiffLedgersTest, TwoLedgersCanBeComparedAlone) {
  write_ledger(other_, "train", 7);
  const Outcome outcome =
      steptape({"diff", storage::ledger_beside(path_), storage::ledger_beside(other_)});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.out, StartsWith("differ: ledger (train: call 7: results)\n"));
}

TEST_F(DiffLedgersTest, TimesAreToldAndFailOnlyWhereAskedFor) {
  write_ledger(other_, "train", 21, 150);
  EXPECT_THAT(diff().out, StartsWith("equal but for time (1)\n"));
  EXPECT_THAT(diff().out, HasSubstr("100 → 150 µs"));
  EXPECT_EQ(diff().exit_code, 0);
  EXPECT_EQ(diff({"--fail-on", "time"}).exit_code, 1);
}

TEST_F(DiffLedgersTest, ALedgerBesideOneOfThemIsToldAndNotCompared) {
  std::filesystem::remove(storage::ledger_beside(other_));
  const Outcome outcome = diff();
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_EQ(outcome.out,
            "equal\n\nledger\n  only the first run left one: calls are not compared\n" + kNote);
  EXPECT_EQ(nlohmann::json::parse(diff({"--json"}).out)["ledger_only_in"], "a");
  EXPECT_EQ(diff({"--ignore", "ledger,time"}).out, "equal\n" + kNote);
  write_ledger(other_, "train");
  EXPECT_FALSE(nlohmann::json::parse(diff({"--json"}).out).contains("ledger_only_in"));
  std::filesystem::remove(storage::ledger_beside(path_));
  EXPECT_THAT(diff().out, HasSubstr("only the second run left one"));
  EXPECT_EQ(nlohmann::json::parse(diff({"--json"}).out)["ledger_only_in"], "b");
}

TEST_F(DiffLedgersTest, TimesOfFewCallsAreNotCompared) {
  write_ledger(other_, "train", 21, 150, 7);
  EXPECT_THAT(diff().out, HasSubstr("of 20 and 7 calls: too few to compare, which takes 8 each\n"));
  const auto json = nlohmann::json::parse(diff({"--json"}).out);
  EXPECT_EQ(json["ledger"]["steps"][0]["times"]["replayed"]["comparable"], false);
  EXPECT_EQ(json["ledger"]["steps"][0]["times"]["replayed"]["differs"], false);
  write_ledger(other_, "train", 21, 100, 8);
  EXPECT_THAT(diff().out, HasSubstr("of 20 and 8 calls: within the noise\n"));
}

TEST_F(DiffLedgersTest, ADamagedLedgerIsTrouble) {
  std::ofstream(storage::ledger_beside(other_)) << "a text";
  EXPECT_EQ(diff().exit_code, 2);
  EXPECT_EQ(diff({"--ignore", "ledger,time"}).exit_code, 0);
}

TEST_F(DiffLedgersTest, ALedgerWithATornTailIsNotToldToBeEqual) {
  std::ofstream(storage::ledger_beside(other_), std::ios::app) << "torn";
  EXPECT_EQ(diff().exit_code, 2);
  EXPECT_THAT(diff().err, HasSubstr("the last 4 B were being written when the machine stopped"));
  EXPECT_EQ(steptape({"bisect", path_, other_}).exit_code, 2);
  EXPECT_EQ(diff({"--ignore", "ledger,time"}).exit_code, 0);
  write_ledger(path_, "train", 7);
  EXPECT_EQ(diff().exit_code, 1);
  EXPECT_EQ(steptape({"bisect", path_, other_}).exit_code, 1);
}

TEST_F(DiffLedgersTest, ALedgerAndATraceAreTrouble) {
  const std::filesystem::path ledger = storage::ledger_beside(path_);
  const Outcome outcome = steptape({"diff", ledger, other_});
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_THAT(outcome.err, HasSubstr(ledger.string() + " is a ledger and " + other_.string() +
                                     " is none: give two ledgers or two traces"));
  EXPECT_THAT(steptape({"bisect", other_, ledger}).err, HasSubstr("is a ledger and "));
}

TEST_F(DiffLedgersTest, NamesInALedgerCannotMoveTheCursor) {
  write_ledger(path_, "\x1b[2J");
  write_ledger(other_, "\x1b[2J", 7, 150);
  EXPECT_THAT(diff().out, Not(HasSubstr("\x1b")));
  EXPECT_THAT(diff().out, HasSubstr("\\x1b[2J: call 7"));
}

/// runA/ and runB/ with a trace of one name.
class DiffFoldersTest : public DiffTest {
 protected:
  DiffFoldersTest() {
    for (const std::filesystem::path& run : {a_, b_}) {
      std::filesystem::create_directory(run);
      storage::write(test::train_trace(), run / "one.tape");
    }
  }
  Outcome diff(std::vector<std::string> options = {}) const {
    options.insert(options.begin(), {"diff", a_, b_});
    return steptape(options);
  }

  std::filesystem::path a_ = folder_ / "runA";
  std::filesystem::path b_ = folder_ / "runB";
};

TEST_F(DiffFoldersTest, TracesOfOneNameAreCompared) {
  EXPECT_EQ(diff().out, "one.tape: equal\n" + kNote);
  EXPECT_EQ(diff().exit_code, 0);
  storage::write(changed(), b_ / "one.tape");
  EXPECT_THAT(diff().out, StartsWith("one.tape: differ: structure ("));
  EXPECT_EQ(diff().exit_code, 1);
}

TEST_F(DiffFoldersTest, TracesOfOneRankAreCompared) {
  for (const char* rank : {"0", "1"}) {
    storage::write(test::train_trace(), a_ / fmt::format("monday.rank{}.tape", rank));
    storage::write(test::train_trace(), b_ / fmt::format("tuesday.rank{}.tape", rank));
  }
  storage::write(changed(), b_ / "tuesday.rank1.tape");
  const Outcome outcome = diff();
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.out, HasSubstr("monday.rank0.tape → tuesday.rank0.tape: equal\n"));
  EXPECT_THAT(outcome.out, HasSubstr("monday.rank1.tape → tuesday.rank1.tape: differ: structure"));
  const auto json = nlohmann::json::parse(diff({"--json"}).out);
  EXPECT_EQ(json["traces"][1]["name"], "monday.rank1.tape");
  EXPECT_EQ(json["traces"][1]["name_in_b"], "tuesday.rank1.tape");
  storage::write(test::train_trace(), b_ / "again.rank1.tape");
  EXPECT_THAT(diff().out, HasSubstr("monday.rank1.tape: differ: only in "));
}

TEST_F(DiffFoldersTest, OneNameGoesBeforeOneRank) {
  storage::write(test::train_trace(), a_ / "one.rank0.tape");
  storage::write(test::train_trace(), b_ / "one.rank0.tape");
  storage::write(changed(), b_ / "two.rank0.tape");
  const Outcome outcome = diff();
  EXPECT_THAT(outcome.out, StartsWith("one.rank0.tape: equal\n"));
  EXPECT_THAT(outcome.out, HasSubstr("two.rank0.tape: differ: only in "));
}

TEST_F(DiffFoldersTest, ATraceWithoutPartnerDiffers) {
  storage::write(test::train_trace(), b_ / "two.tape");
  const Outcome outcome = diff();
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_EQ(outcome.out,
            "one.tape: equal\ntwo.tape: differ: only in " + b_.string() + "\n" + kNote);
  const auto json = nlohmann::json::parse(diff({"--json"}).out);
  EXPECT_EQ(json["only_in_b"], nlohmann::json({"two.tape"}));
  EXPECT_EQ(json["traces"][0]["differ"], false);
}

TEST_F(DiffFoldersTest, ADamagedTraceIsTroubleAndTheOthersAreCompared) {
  storage::write(test::train_trace(), a_ / "two.tape");
  storage::write(test::train_trace(), b_ / "two.tape");
  std::filesystem::resize_file(a_ / "one.tape", 300);
  const Outcome outcome = diff();
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_EQ(outcome.out, "two.tape: equal\n" + kNote);
  EXPECT_THAT(outcome.err, HasSubstr("one.tape"));
}

TEST_F(DiffFoldersTest, FoldersWithoutACommonTraceAreTrouble) {
  std::filesystem::remove(a_ / "one.tape");
  EXPECT_EQ(diff().exit_code, 2);
}

}  // namespace
}  // namespace steptape::tools
