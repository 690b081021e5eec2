#include <gmock/gmock.h>

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>

#include "tests/tools/recorded_runs.h"
#include "tests/trace/made_up.h"
#include "tests/trace/samples.h"

namespace steptape::tools {
namespace {

using Json = nlohmann::json;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

constexpr std::string_view kDataStart = R"(<script type="application/json" id="data">)";
constexpr std::string_view kScriptEnd = "</script>";

class ReportTest : public ToolTest {
 protected:
  /// The page of run.tape, or of it and another.
  std::string page(const std::vector<std::string>& more = {}) const {
    std::vector<std::string> arguments = {"report", path_};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Outcome outcome = steptape(arguments);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    return outcome.out;
  }
  /// What lies in the element of the data.
  static std::string data_text(const std::string& page) {
    const std::size_t start = page.find(kDataStart) + kDataStart.size();
    return page.substr(start, page.find(kScriptEnd, start) - start);
  }
  Json data(const std::vector<std::string>& more = {}) const {
    return Json::parse(data_text(page(more)));
  }
  Json recording() const { return data()["steps"][0]["recordings"][0]; }
  /// A second trace beside run.tape.
  std::string other(const trace::Trace& trace) const {
    const std::filesystem::path run = folder_ / "run.aside";
    std::filesystem::rename(path_, run);
    rewrite(trace);
    const std::filesystem::path to = folder_ / "other.tape";
    std::filesystem::rename(path_, to);
    std::filesystem::rename(run, path_);
    return to;
  }
};

std::size_t count_of(const std::string& text, std::string_view part) {
  std::size_t count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) {
    ++count;
  }
  return count;
}

trace::Trace evil_trace(const std::string& name) {
  trace::Trace trace = test::train_trace();
  trace.producer.push_back({name, name});
  trace.steps[0].place = name;
  trace::Recording& recording = trace.steps[0].recordings[0];
  recording.operators[0].name += name;
  recording.scopes[0] = name;
  recording.modules[0].type = name;
  recording.optimizers[0].type = name;
  recording.refusals[0].message = name;
  recording.ambient[0].value = name;
  return trace;
}

TEST_F(ReportTest, IsOnePageThatTakesNothingFromANetwork) {
  const std::string text = page();
  EXPECT_THAT(text, testing::StartsWith("<!doctype html>"));
  EXPECT_THAT(text, testing::EndsWith("</html>\n"));
  for (const char* outside : {"http://", "https://", " src=", "<link", "@import", "url("}) {
    EXPECT_THAT(text, Not(HasSubstr(outside)));
  }
  EXPECT_THAT(text, HasSubstr("default-src 'none'; style-src 'sha256-"));
  EXPECT_THAT(text, HasSubstr("script-src 'sha256-"));
}

TEST_F(ReportTest, EveryPlaceOfTheTemplateIsFilled) { EXPECT_THAT(page(), Not(HasSubstr("{{"))); }

TEST_F(ReportTest, HoldsTheTraceByColumns) {
  const Json json = recording();
  EXPECT_EQ(json["ops"]["operator"], Json({0, 0, 1, 2, 1}));
  EXPECT_EQ(json["ops"]["part"], Json({0, 1, 2, 2, 2}));
  EXPECT_EQ(json["ops"]["call"], Json({1, 2, 0, 0, 0}));
  EXPECT_EQ(json["ops"]["module"][2], -1);
  EXPECT_EQ(json["ops"]["inputs"][2], Json({5, 4, "1"}));
  EXPECT_EQ(json["ops"]["inputs"][3][0], Json({5, -1}));
  EXPECT_EQ(json["operators"][1]["name"], "aten::add_.Tensor");
  EXPECT_EQ(json["operators"][1]["arguments"], Json({"self", "other", "alpha"}));
  EXPECT_EQ(json["tensors"]["sizes"][1], Json({2, 2}));
  EXPECT_EQ(json["tensors"]["strides"], Json({{"1", {1, 2}}}));
  EXPECT_EQ(json["tensors"]["flags"], Json({{"3", "number"}}));
}

TEST_F(ReportTest, HoldsWhatOpsTook) {
  EXPECT_EQ(recording()["ops"]["ns"], Json::array());
  trace::Trace trace = test::train_trace();
  trace.steps[0].recordings[0].op_ns = {1, 2, 3, 4, 4'000'000'000};
  rewrite(trace);
  EXPECT_EQ(recording()["ops"]["ns"], Json({1, 2, 3, 4, 4'000'000'000}));
}

TEST_F(ReportTest, HoldsWhenBuffersAreFirstAndLastUsed) {
  const Json buffers = recording()["buffers"];
  EXPECT_EQ(buffers["first"], Json({0, 0, 0, -1, 1, 2}));
  EXPECT_EQ(buffers["last"], Json({4, 1, 1, -1, 2, 4}));
  EXPECT_EQ(buffers["path"]["5"], "optimizer.state[model.fc1.weight].momentum_buffer");
}

TEST_F(ReportTest, HoldsConstantsAndRefusalsButNoTensorBytes) {
  const Json json = recording();
  EXPECT_EQ(json["constants"][0]["bytes"], 4);
  EXPECT_EQ(json["constants"][0]["kept"], true);
  EXPECT_EQ(json["refusals"][0]["code"], "host_read");
  EXPECT_FALSE(json["buffers"].contains("content"));
}

TEST_F(ReportTest, HoldsFormulasAndWhereTheyEnter) {
  rewrite(test::numbers_trace());
  const Json numbers = recording()["numbers"];
  EXPECT_FALSE(numbers["sites"].empty());
  for (const Json& site : numbers["sites"]) {
    EXPECT_LT(site["formula"], numbers["formulas"].size());
  }
  EXPECT_FALSE(numbers["leaves"].empty());
}

TEST_F(ReportTest, NoNameEndsTheElementOfTheData) {
  for (const std::string name :
       {"</script><script>alert(1)</script>", "<!--<script>", "]]>", "&lt;", "\"}</SCRIPT >"}) {
    const std::string clean = page();
    rewrite(evil_trace(name));
    const std::string text = page();
    EXPECT_EQ(count_of(text, "<script"), count_of(clean, "<script")) << name;
    EXPECT_EQ(count_of(text, "</script"), count_of(clean, "</script")) << name;
    EXPECT_THAT(data_text(text), Not(testing::ContainsRegex("[<>&]"))) << name;
    EXPECT_EQ(data()["steps"][0]["place"], name);
    rewrite(test::train_trace());
  }
}

TEST_F(ReportTest, ControlCharactersAndOtherScriptsArePlainAscii) {
  rewrite(evil_trace("\x01\x1b[2J\xe2\x80\xae\xe2\x80\xa8\xc3\xa9"));
  const std::string text = data_text(page());
  EXPECT_TRUE(std::ranges::all_of(text, [](char c) { return c >= ' ' && c < 0x7f; }));
  EXPECT_EQ(data()["steps"][0]["place"], "\x01\x1b[2J\xe2\x80\xae\xe2\x80\xa8\xc3\xa9");
}

TEST_F(ReportTest, BytesThatAreNoUtf8AreReplaced) {
  rewrite(evil_trace("\xff"));
  EXPECT_EQ(data()["steps"][0]["place"], "\xef\xbf\xbd");
}

TEST_F(ReportTest, NamesTheFileWithoutItsFolder) {
  EXPECT_EQ(data()["a"]["name"], "run.tape");
  EXPECT_THAT(page(), Not(HasSubstr(folder_.string())));
}

TEST_F(ReportTest, ASecondTraceIsShownBesideTheFirst) {
  trace::Trace trace = test::train_trace();
  trace.steps[0].recordings[0].ops[2].inputs[2].data = std::int64_t{2};
  const Json json = data({other(trace)});
  EXPECT_EQ(json["b"]["name"], "other.tape");
  EXPECT_EQ(json["diff"]["counts"]["structure"], 1);
  const Json rows = json["diff"]["steps"][0]["recordings"][0]["rows"];
  ASSERT_EQ(rows.size(), 3u);
  std::size_t same = 0;
  for (const Json& row : rows) same += row.contains("same") ? row["same"][2].get<std::size_t>() : 0;
  EXPECT_EQ(same, 4u);
}

TEST_F(ReportTest, SideBySideEveryOpOfBothStandsOnce) {
  trace::Trace a;
  a.steps.push_back({"train", "", {test::make_up({.seed = 7})}});
  trace::Trace b = a;
  trace::Recording& recording = b.steps[0].recordings[0];
  test::remove_op(recording, 3);
  test::insert_op(recording, 9, recording.ops[5]);
  test::move_op(recording, 14, 20);
  rewrite(a);
  const Json diff = data({other(b)})["diff"]["steps"][0]["recordings"][0];
  std::multiset<std::size_t> ops_a, ops_b;
  for (const Json& row : diff["rows"]) {
    if (row.contains("same")) {
      for (std::size_t i = 0; i < row["same"][2]; ++i) {
        ops_a.insert(row["same"][0].get<std::size_t>() + i);
        ops_b.insert(row["same"][1].get<std::size_t>() + i);
      }
      continue;
    }
    const bool is_move = row["kind"] == "move";
    if (row.contains("a") && (!is_move || row["side"] == "a"))
      ops_a.insert(row["a"]["op"].get<std::size_t>());
    if (row.contains("b") && (!is_move || row["side"] == "b"))
      ops_b.insert(row["b"]["op"].get<std::size_t>());
  }
  EXPECT_EQ(ops_a.size(), diff["ops_a"]);
  EXPECT_EQ(ops_b.size(), diff["ops_b"]);
  EXPECT_EQ(std::set(ops_a.begin(), ops_a.end()).size(), ops_a.size());
  EXPECT_EQ(std::set(ops_b.begin(), ops_b.end()).size(), ops_b.size());
}

TEST_F(ReportTest, EqualTracesHaveNoEdit) {
  const Json diff = data({other(test::train_trace())})["diff"];
  for (const auto& [section, count] : diff["counts"].items()) EXPECT_EQ(count, 0) << section;
}

TEST_F(ReportTest, WhatMakesNothingDifferIsToldAllTheSame) {
  trace::Trace trace = test::train_trace();
  trace.steps[0].place = "train.cc:42";
  const Json diff = data({other(trace)})["diff"];
  EXPECT_EQ(diff["counts"]["place"], 1);
  EXPECT_EQ(diff["differs"], false);
  trace.steps[0].recordings[0].ops[2].inputs[2].data = std::int64_t{2};
  EXPECT_EQ(data({other(trace)})["diff"]["differs"], true);
}

TEST_F(ReportTest, OneStepIsReportedAlone) {
  trace::Trace trace = test::train_trace();
  trace.steps.push_back({"eval", "", {}});
  rewrite(trace);
  const Json json = data({"--step", "train"});
  EXPECT_EQ(json["steps"].size(), 1u);
}

TEST_F(ReportTest, IsWrittenToAFileThatIsThereWholeOrNot) {
  const std::filesystem::path out = folder_ / "report.html";
  EXPECT_THAT(page({"-o", out}), IsEmpty());
  EXPECT_GT(std::filesystem::file_size(out), 10'000u);
  EXPECT_EQ(steptape({"report", path_, "-o", folder_ / "no" / "report.html"}).exit_code, 2);
}

TEST_F(ReportTest, ReplacesNoTrace) {
  const std::uintmax_t before = std::filesystem::file_size(path_);
  const Outcome outcome = steptape({"report", path_, "-o", path_});
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("exists and is a trace; it was left as it is"));
  EXPECT_EQ(std::filesystem::file_size(path_), before);
}

TEST_F(ReportTest, PagesCheckThemselvesInAHeadlessBrowser) {
  rewrite(evil_trace("</script><b>\x1b"));
  trace::Trace made_up;
  made_up.steps.push_back({"train", "", {test::make_up({.seed = 5})}});
  other(made_up);
  const std::string script = STEPTAPE_SOURCE_DIR "/tests/tools/report/report_page_test.py";
  const Outcome outcome =
      run_program("/usr/bin/env", {"python3", script, STEPTAPE_TOOL, folder_}, folder_);
  constexpr int kSkipped = 77;
  if (outcome.exit_code == kSkipped) GTEST_SKIP() << outcome.out;
  EXPECT_EQ(outcome.exit_code, 0) << outcome.out << outcome.err;
}

/// run.tape and other.tape: recordings of one program.
class ReportRunsTest : public RecordedRunsTest {
 protected:
  Json diff(std::vector<std::string> more = {}) const {
    more.insert(more.begin(), {"report", path_, other_});
    const std::string page = steptape(more).out;
    const std::size_t start = page.find(kDataStart) + kDataStart.size();
    return Json::parse(page.substr(start, page.find(kScriptEnd, start) - start))["diff"];
  }
  /// Three recordings whose ops take so long each.
  static void write_timed(const std::filesystem::path& path, std::uint32_t ns) {
    write(path, {{1, {}, true, ns}, {2, {}, true, ns}, {3, {}, true, ns}});
  }
};

TEST_F(ReportRunsTest, OpsThatLeftOtherBitsStandWithTheirReasonAndOriginsFirst) {
  write(other_, {{3, {.flipped = {1}}}});
  const Json pair = diff()["steps"][0]["recordings"][0];
  EXPECT_EQ(pair["call"], 3);
  const Json& numerics = pair["numerics"];
  EXPECT_EQ(numerics["origins"], 1);
  EXPECT_EQ(numerics["noisy"], 0);
  EXPECT_EQ(numerics["left_out"], 0);
  EXPECT_EQ(numerics["ops"].size(), numerics["receivers"].get<std::size_t>() + 1);
  EXPECT_EQ(numerics["ops"][0]["status"], "origin");
  EXPECT_EQ(numerics["ops"][0]["call"], "model.m0");
  EXPECT_EQ(numerics["ops"][0]["line"], "train.py:41");
  EXPECT_EQ(numerics["ops"][0]["cause"], "inputs are equal");
  EXPECT_THAT(numerics["ops"][1]["cause"].get<std::string>(), HasSubstr(" differs: op 1 "));
}

TEST_F(ReportRunsTest, OtherBitsAtEntryAreNamed) {
  write(other_, {{3, {.entered = {{"inputs[0]", 1}}}}});
  EXPECT_EQ(diff()["steps"][0]["recordings"][0]["numerics"]["entered"], "inputs[0]");
}

TEST_F(ReportRunsTest, WhyNothingWasComparedIsSaid) {
  write(other_, {{3, {}, /*has_digests=*/false}});
  EXPECT_EQ(diff()["steps"][0]["recordings"][0]["numerics"],
            Json({{"not_compared", "the second has no digests of its ops"}}));
}

TEST_F(ReportRunsTest, WhatAControlShowsTooIsNoise) {
  write(other_, {{3, {.flipped = {1}}}});
  write(again_, {{3, {.flipped = {1}}}});
  const Json found = diff({"--control", again_});
  EXPECT_EQ(found["differs"], false);
  EXPECT_EQ(found["steps"][0]["recordings"][0]["numerics"]["origins"], 0);
  EXPECT_EQ(found["steps"][0]["recordings"][0]["numerics"]["ops"][0]["noisy"], true);
  EXPECT_EQ(steptape({"report", path_, "--control", again_}).exit_code, 2);
}

TEST_F(ReportRunsTest, TimesOfModulesStandWithTheirNoise) {
  write(other_, {{3}});
  EXPECT_EQ(diff()["steps"][0]["times"], Json());
  write_timed(path_, 2000);
  write_timed(other_, 5000);
  const Json found = diff();
  EXPECT_EQ(found["differs"], false);
  EXPECT_GT(found["counts"]["time"], 0);
  const Json& times = found["steps"][0]["times"];
  EXPECT_EQ(times["step"]["differs"], true);
  EXPECT_EQ(times["step"]["band"], "all");
  EXPECT_EQ(times["modules"].size(), 3u);
  write(other_, {{3}});
  EXPECT_EQ(diff()["steps"][0]["times_only_in"], "a");
}

TEST_F(ReportRunsTest, PagesOfTwoRunsCheckThemselvesInAHeadlessBrowser) {
  write_timed(path_, 2000);
  write(other_, {{1, {.flipped = {1}}, true, 5000}, {2, {}, true, 5000}, {3, {}, true, 5000}});
  const std::string script = STEPTAPE_SOURCE_DIR "/tests/tools/report/report_page_test.py";
  const Outcome outcome =
      run_program("/usr/bin/env", {"python3", script, STEPTAPE_TOOL, folder_}, folder_);
  constexpr int kSkipped = 77;
  if (outcome.exit_code == kSkipped) GTEST_SKIP() << outcome.out;
  EXPECT_EQ(outcome.exit_code, 0) << outcome.out << outcome.err;
}

TEST_F(ReportTest, AHundredThousandOpsTakeLessThan20Megabytes) {
  trace::Trace trace;
  trace.steps.push_back(
      {"train", "", {test::make_up({.seed = 1, .modules = 1000, .ops_a_module = 50})}});
  ASSERT_GE(trace.steps[0].recordings[0].ops.size(), 100'000u);
  rewrite(trace);
  EXPECT_LT(page().size(), 20'000'000u);
}

}  // namespace
}  // namespace steptape::tools
