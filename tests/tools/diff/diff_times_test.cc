#include <gmock/gmock.h>

#include <map>
#include <nlohmann/json.hpp>

#include "storage/trace/writer.h"
#include "tests/tools/process.h"
#include "tests/trace/made_up.h"

namespace steptape::tools {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

/// run.tape and other.tape: recordings of one step that say how long their ops took.
class DiffTimesTest : public ToolTest {
 protected:
  DiffTimesTest() {
    write(path_, 8, {});
    write(other_, 8, {});
  }

  /// Each op takes 2 µs, and `more` nanoseconds more if its module is the key.
  static void write(const std::filesystem::path& path, std::size_t recordings,
                    const std::map<std::string, std::uint32_t>& more) {
    trace::Trace trace;
    trace.steps.push_back({"train", "", {}});
    for (std::size_t i = 0; i < recordings; ++i) {
      trace::Recording recording = test::make_up({.seed = 1, .modules = 12, .ops_a_module = 2});
      recording.status = trace::Status::kTrusted;
      for (const trace::Op& op : recording.ops) {
        const bool has_module = op.module != trace::kNone;
        const auto found = more.find(has_module ? recording.modules[op.module].path : "");
        recording.op_ns.push_back(2000 + (found == more.end() ? 0 : found->second));
      }
      trace.steps[0].recordings.push_back(std::move(recording));
    }
    storage::write(trace, path);
  }
  Outcome diff(std::vector<std::string> options = {}) const {
    options.insert(options.begin(), {"diff", path_, other_, "--ignore", "numerics"});
    return steptape(options);
  }

  std::filesystem::path other_ = folder_ / "other.tape";
};

TEST_F(DiffTimesTest, EqualTimesAreToldBelowTheVerdict) {
  const Outcome outcome = diff();
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_THAT(outcome.out, StartsWith("equal\n\ntime\n  train ops: "));
  EXPECT_THAT(outcome.out, HasSubstr("    no module: 24.0 → 24.0 µs, middle half 24.0 to 24.0 → "
                                     "24.0 to 24.0, of 8 and 8 recordings: within the noise\n"));
}

TEST_F(DiffTimesTest, ModulesThatDifferComeFirstAndDoNotFail) {
  write(other_, 8, {{"model.m3", 5000}, {"model.m7", 9000}});
  const Outcome outcome = diff();
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_THAT(outcome.out, StartsWith("equal but for time (3)\n"));
  const std::size_t seventh = outcome.out.find("    model.m7: ");
  const std::size_t third = outcome.out.find("    model.m3: ");
  ASSERT_NE(third, std::string::npos);
  EXPECT_LT(seventh, third);
  EXPECT_LT(third, outcome.out.find("    no module: "));
  EXPECT_THAT(outcome.out.substr(third, outcome.out.find('\n', third) - third),
              testing::EndsWith(" of 8 and 8 recordings: differs"));
}

TEST_F(DiffTimesTest, TheyFailOnlyWhereAskedFor) {
  write(other_, 8, {{"model.m3", 5000}});
  EXPECT_EQ(diff({"--fail-on", "time"}).exit_code, 1);
  EXPECT_EQ(diff({"--fail-on", "structure"}).exit_code, 0);
  EXPECT_EQ(steptape({"diff", path_, other_, "--ignore", "numerics,time"}).out, "equal\n");
}

TEST_F(DiffTimesTest, EightModulesAreShownUnlessAllAreAskedFor) {
  EXPECT_THAT(diff().out, HasSubstr("    and 5 more\n"));
  EXPECT_THAT(diff({"--all"}).out, Not(HasSubstr("more")));
  EXPECT_THAT(diff({"--all"}).out, HasSubstr("    model.m11: "));
  EXPECT_THAT(diff({"--stat"}).out, HasSubstr("  train ops: "));
  EXPECT_THAT(diff({"--stat"}).out, Not(HasSubstr("model.m")));
}

TEST_F(DiffTimesTest, BelowEightRecordingsAllTimesAreTheBand) {
  write(path_, 7, {});
  EXPECT_THAT(diff().out, HasSubstr("    no module: 24.0 → 24.0 µs, all within 24.0 to 24.0 → 24.0 "
                                    "to 24.0, of 7 and 8 recordings: within the noise\n"));
}

TEST_F(DiffTimesTest, TimesOfFewRecordingsAreNotCompared) {
  write(other_, 2, {{"model.m3", 5000}});
  EXPECT_THAT(diff({"--fail-on", "time"}).out, StartsWith("equal"));
  EXPECT_THAT(diff().out,
              HasSubstr("of 8 and 2 recordings: too few to compare, which takes 3 each\n"));
}

TEST_F(DiffTimesTest, TimesOfOneSideAreToldAndNotCompared) {
  trace::Trace trace;
  trace.steps.push_back({"train", "", {test::make_up({.seed = 1, .modules = 12})}});
  storage::write(trace, other_);
  EXPECT_THAT(diff().out,
              HasSubstr("time\n  train ops: only the first trace says how long they took\n"));
  const auto json = nlohmann::json::parse(diff({"--json"}).out);
  EXPECT_EQ(json["steps"][0]["op_times_only_in"], "a");
  EXPECT_FALSE(json["steps"][0].contains("op_times"));
}

TEST_F(DiffTimesTest, JsonHoldsEveryModule) {
  write(other_, 8, {{"model.m3", 5000}});
  const auto json = nlohmann::json::parse(diff({"--json"}).out);
  EXPECT_EQ(json["counts"]["time"], 2);
  const auto& times = json["steps"][0]["op_times"];
  EXPECT_EQ(times["step"]["differs"], true);
  ASSERT_EQ(times["modules"].size(), 13u);
  const auto& first = times["modules"][0];
  EXPECT_EQ(first["module"], "model.m3");
  EXPECT_EQ(first["comparable"], true);
  EXPECT_EQ(first["a"]["recordings"], 8);
  EXPECT_EQ(first["b"]["least_ns"].get<int>() * 2, first["a"]["least_ns"].get<int>() * 7);
  EXPECT_EQ(first["b"]["median_ns"], first["b"]["most_ns"]);
  EXPECT_FALSE(nlohmann::json::parse(
                   steptape({"diff", path_, other_, "--ignore", "time", "--json"}).out)["steps"][0]
                   .contains("op_times"));
}

}  // namespace
}  // namespace steptape::tools
