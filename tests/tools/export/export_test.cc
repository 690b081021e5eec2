#include <gmock/gmock.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "perfetto.pb.h"
#include "tests/tools/process.h"
#include "tests/trace/made_up.h"
#include "tests/trace/samples.h"

namespace steptape::tools {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

class ExportTest : public ToolTest {
 protected:
  std::string exported(const std::vector<std::string>& more) const {
    std::vector<std::string> arguments = {"export", path_};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Outcome outcome = steptape(arguments);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    return outcome.out;
  }
  perfetto::Trace timeline() const {
    perfetto::Trace trace;
    EXPECT_TRUE(trace.ParseFromString(exported({"--perfetto"})));
    return trace;
  }
};

trace::Trace made_up_trace() {
  trace::Trace trace;
  trace.steps.push_back({"train", "", {test::make_up({.seed = 3})}});
  return trace;
}

/// A step with names that mean something to each format.
trace::Trace evil_trace() {
  trace::Trace trace = test::train_trace();
  trace::Recording& recording = trace.steps[0].recordings[0];
  recording.scopes[0] = "=cmd()\n\"a\",b\x1b[2J";
  recording.operators[0].name = "aten::\"];evil[label=\"\n";
  return trace;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

TEST_F(ExportTest, CsvIsALineAnOp) {
  const std::vector<std::string> lines = lines_of(exported({"--csv"}));
  ASSERT_EQ(lines.size(), 6u);
  EXPECT_EQ(lines[0], "op,part,operator,module_call,sequence,call,where\r");
  EXPECT_THAT(lines[2], testing::StartsWith("1,backward,\"aten::mm\",\"model.fc1@2\",0,"));
  EXPECT_THAT(lines[3], testing::StartsWith("2,update,\"aten::add_.Tensor\",\"\",,"));
}

TEST_F(ExportTest, NamesInCsvEndNoCellAndNoLineAndAreNoFormula) {
  rewrite(evil_trace());
  const std::string csv = exported({"--csv"});
  EXPECT_EQ(lines_of(csv).size(), 6u);
  EXPECT_THAT(csv, HasSubstr("\"'=cmd()\\n\"\"a\"\",b\\x1b[2J\""));
}

TEST_F(ExportTest, PythonReadsCsvAsItStands) {
  rewrite(evil_trace());
  exported({"--csv", "-o", folder_ / "ops.csv"});
  const Outcome outcome = run_program(
      STEPTAPE_PYTHON,
      {"-c", "import csv; rows = list(csv.reader(open('" + (folder_ / "ops.csv").string() +
                 "', newline=''), strict=True)); print({len(row) for row in rows}, "
                 "len(rows), rows[1][6], sep='|')"},
      folder_);
  EXPECT_EQ(outcome.out, "{7}|6|'=cmd()\\n\"a\",b\\x1b[2J\n") << outcome.err;
}

TEST_F(ExportTest, DotHasANodeAnOpInTheBoxOfItsModule) {
  const std::string dot = exported({"--dot"});
  EXPECT_THAT(dot, testing::StartsWith("digraph \"train, recording 0\" {\n"));
  for (int op = 0; op < 5; ++op) EXPECT_THAT(dot, HasSubstr("op" + std::to_string(op) + " [label"));
  EXPECT_THAT(dot, HasSubstr("label=\"model.fc1\""));
  EXPECT_THAT(dot, HasSubstr("op0 -> op1 "));
  EXPECT_THAT(dot, HasSubstr("op3 -> op4 "));
}

TEST_F(ExportTest, NamesInDotEndNoString) {
  rewrite(evil_trace());
  const std::string dot = exported({"--dot"});
  EXPECT_THAT(dot, HasSubstr(R"(\"];evil[label=\"\\n)"));
  EXPECT_THAT(dot, Not(HasSubstr("\n\"")));
}

/// Of `dot`, which reads the graph.
void expect_graph(const std::string& dot, const std::filesystem::path& folder) {
  if (!std::filesystem::exists("/usr/bin/dot")) GTEST_SKIP() << "there is no /usr/bin/dot";
  std::ofstream(folder / "step.dot") << dot;
  const Outcome outcome = run_program("/usr/bin/dot", {"-Tsvg", folder / "step.dot"}, folder);
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_EQ(outcome.err, "");
  EXPECT_THAT(outcome.out, HasSubstr("<title>op0</title>"));
  EXPECT_THAT(outcome.out, Not(HasSubstr("<title>evil</title>")));
}

TEST_F(ExportTest, GraphvizReadsDot) { expect_graph(exported({"--dot"}), folder_); }

TEST_F(ExportTest, GraphvizReadsDotWhateverNamesHold) {
  for (const char* name : {"\"]; evil [label=\"", "\\\"; evil", "<b>&amp;", "a\nb\\N", "}}}"}) {
    trace::Trace trace = evil_trace();
    trace.steps[0].name = name;
    trace.steps[0].recordings[0].operators[0].name = name;
    for (trace::Module& module : trace.steps[0].recordings[0].modules) module.path = name;
    for (trace::Buffer& buffer : trace.steps[0].recordings[0].buffers) buffer.path = name;
    rewrite(trace);
    expect_graph(exported({"--dot"}), folder_);
  }
}

TEST_F(ExportTest, BoxesStandInTheBoxOfTheModuleThatHoldsThem) {
  const std::string dot = exported({"--dot"});
  EXPECT_THAT(dot, HasSubstr("  subgraph cluster_0 {\n  label=\"model\";\n"
                             "  subgraph cluster_1 {\n  label=\"model.fc1\";\n  op0 ["));
  EXPECT_EQ(std::ranges::count(dot, '{'), std::ranges::count(dot, '}'));
}

TEST_F(ExportTest, JsonHoldsTheChosenRecordingAlone) {
  trace::Trace trace = made_up_trace();
  trace.steps[0].recordings.push_back(trace.steps[0].recordings[0]);
  trace.steps[0].recordings[1].ops.pop_back();
  rewrite(trace);
  const auto json = nlohmann::json::parse(exported({"--json", "--recording", "0"}));
  ASSERT_EQ(json["steps"][0]["recordings"].size(), 1u);
  EXPECT_EQ(json["steps"][0]["recordings"][0]["ops"].size(),
            trace.steps[0].recordings[0].ops.size());
}

TEST_F(ExportTest, TheLastRecordingOfAPlanIsMeantWhereNoneIsNamed) {
  trace::Trace trace = made_up_trace();
  trace.steps[0].recordings.push_back(trace.steps[0].recordings[0]);
  trace.steps[0].recordings[1].status = trace::Status::kWarmUp;
  trace.steps[0].recordings[0].ops.pop_back();
  rewrite(trace);
  EXPECT_EQ(lines_of(exported({"--csv"})).size(), trace.steps[0].recordings[0].ops.size() + 1);
}

TEST_F(ExportTest, OneOfSeveralStepsHasToBeNamed) {
  trace::Trace trace = test::train_trace();
  trace.steps.push_back({"eval", "", {}});
  rewrite(trace);
  const Outcome outcome = steptape({"export", path_, "--csv"});
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("choose a step with --step; there are: train, eval"));
  EXPECT_EQ(lines_of(exported({"--csv", "--step", "train"})).size(), 6u);
  EXPECT_THAT(steptape({"export", path_, "--csv", "--step", "eval"}).err,
              HasSubstr("step `eval` has no recording"));
}

TEST_F(ExportTest, ARecordingThatIsNotThereIsTrouble) {
  const Outcome outcome = steptape({"export", path_, "--csv", "--recording", "7"});
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("has no recording 7; it has 1 recording, counted from 0"));
}

TEST_F(ExportTest, OneFormatIsAskedFor) {
  EXPECT_EQ(steptape({"export", path_}).exit_code, 2);
  EXPECT_EQ(steptape({"export", path_, "--csv", "--dot"}).exit_code, 2);
}

TEST_F(ExportTest, PerfettoHasTracksForThePartsOfTheStep) {
  std::vector<std::string> names;
  std::map<std::string, std::uint64_t> parents;
  const perfetto::Trace drawn = timeline();
  for (const auto& packet : drawn.packet()) {
    if (!packet.has_track_descriptor()) continue;
    names.push_back(packet.track_descriptor().name());
    parents[names.back()] = packet.track_descriptor().parent_uuid();
  }
  EXPECT_THAT(names,
              ElementsAre("train, recording 0: each op is drawn as 1 us, the trace holds no times",
                          "forward", "backward", "update", "bytes of temporaries"));
  EXPECT_EQ(parents["forward"], 1u);
}

TEST_F(ExportTest, PerfettoSaysThatTimesAreNotRecorded) {
  EXPECT_THAT(steptape({"export", path_, "--perfetto"}).err, HasSubstr("holds no times"));
}

TEST_F(ExportTest, PerfettoOpsAreAsLongAsTheyTook) {
  trace::Trace trace = test::train_trace();
  trace.steps[0].recordings[0].op_ns = {700, 0, 500'000'000, 30, 4'000'000'000};
  rewrite(trace);
  const Outcome outcome = steptape({"export", path_, "--perfetto"});
  EXPECT_THAT(outcome.err, testing::IsEmpty());
  perfetto::Trace drawn;
  ASSERT_TRUE(drawn.ParseFromString(outcome.out));
  EXPECT_EQ(drawn.packet(0).track_descriptor().name(),
            "train, recording 0: each op is as long as it took, without what lies between");
  std::vector<std::uint64_t> begins;
  for (const auto& packet : drawn.packet()) {
    const perfetto::TrackEvent& event = packet.track_event();
    if (event.categories_size() > 0 && event.categories(0) == "op") {
      begins.push_back(packet.timestamp());
    }
  }
  EXPECT_THAT(begins, ElementsAre(0, 700, 700, 500'000'700, 500'000'730));
  EXPECT_EQ(drawn.packet(drawn.packet_size() - 1).timestamp(), 4'500'000'730u);
}

TEST_F(ExportTest, PerfettoSlicesNestAndEveryOpIsOne) {
  rewrite(made_up_trace());
  std::map<std::uint64_t, std::vector<std::uint64_t>> open;  // begins by track
  std::size_t ops = 0;
  const perfetto::Trace drawn = timeline();
  for (const auto& packet : drawn.packet()) {
    if (!packet.has_track_event()) continue;
    const perfetto::TrackEvent& event = packet.track_event();
    if (event.type() == perfetto::TrackEvent::TYPE_COUNTER) {
      EXPECT_GE(event.counter_value(), 0);
      continue;
    }
    if (event.type() == perfetto::TrackEvent::TYPE_SLICE_BEGIN) {
      open[event.track_uuid()].push_back(packet.timestamp());
      ops += event.categories(0) == "op" ? 1 : 0;
    } else {
      ASSERT_FALSE(open[event.track_uuid()].empty());
      EXPECT_GT(packet.timestamp(), open[event.track_uuid()].back());
      open[event.track_uuid()].pop_back();
    }
  }
  for (const auto& [track, begins] : open) EXPECT_TRUE(begins.empty()) << track;
  EXPECT_EQ(ops, made_up_trace().steps[0].recordings[0].ops.size());
}

TEST_F(ExportTest, PerfettoTimesGoForwardAndTextsAreText) {
  trace::Trace trace = made_up_trace();
  trace.steps[0].name = "train\x1b[2J";
  rewrite(trace);
  std::uint64_t last = 0;
  const perfetto::Trace drawn = timeline();
  for (const auto& packet : drawn.packet()) {
    EXPECT_GE(packet.timestamp(), last);
    last = packet.timestamp();
    EXPECT_EQ(packet.has_track_event(), packet.trusted_packet_sequence_id() == 1);
  }
  EXPECT_EQ(last, trace.steps[0].recordings[0].ops.size() * 1000);
  EXPECT_THAT(drawn.packet(0).track_descriptor().name(), testing::StartsWith("train\\x1b["));
}

TEST_F(ExportTest, PerfettoOpsTellTheirCall) {
  const perfetto::Trace drawn = timeline();
  for (const auto& packet : drawn.packet()) {
    if (packet.track_event().name() != "aten::mm") continue;
    std::vector<std::string> names;
    for (const auto& told : packet.track_event().debug_annotations()) names.push_back(told.name());
    EXPECT_THAT(names, ElementsAre("op", "call", "module", "where"));
    return;
  }
  FAIL() << "no aten::mm";
}

TEST_F(ExportTest, PerfettoOpsStandBelowTheirModuleCalls) {
  std::vector<std::string> names;
  const perfetto::Trace drawn = timeline();
  for (const auto& packet : drawn.packet()) {
    if (packet.track_event().type() == perfetto::TrackEvent::TYPE_SLICE_BEGIN) {
      names.push_back(packet.track_event().name());
    }
  }
  EXPECT_THAT(names,
              ElementsAre("model", "model.fc1", "aten::mm", "model", "model.fc1@2", "aten::mm",
                          "aten::add_.Tensor", "aten::_foreach_mul_.Scalar", "aten::add_.Tensor"));
}

TEST_F(ExportTest, AFileIsWritten) {
  exported({"--csv", "-o", folder_ / "ops.csv"});
  EXPECT_GT(std::filesystem::file_size(folder_ / "ops.csv"), 100u);
}

}  // namespace
}  // namespace steptape::tools
