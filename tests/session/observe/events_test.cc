#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <steptape/steptape.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <thread>

#include "session/observe/event.h"
#include "tests/session/training.h"

namespace steptape::tests {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

at::Tensor sum_of_double(at::Tensor x) { return (x * 2).sum(); }

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

TEST(EventTest, ALineOfAFileIsWellFormedWhateverNamesHold) {
  session::Event event;
  event.step = "a\"b\\c\nd\xff\xed\xa0\x80";
  event.us = std::numeric_limits<double>::infinity();
  event.text = "64 → 17";
  const std::string line = session::json_of(event, 1.5);
  EXPECT_EQ(line.find('\n'), std::string::npos);
  const json read = json::parse(line);
  EXPECT_THAT(read["step"].get<std::string>(), StartsWith("a\"b\\c\nd\uFFFD"));
  EXPECT_TRUE(read["us"].is_null());
  EXPECT_EQ(read["text"], "64 → 17");
  EXPECT_EQ(read["time_s"], 1.5);
}

/// Sessions whose logs a test reads.
class EventsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    unsetenv("STEPTAPE_LOG");
    folder_ = std::filesystem::path(::testing::TempDir()) /
              ("steptape_events_" + std::to_string(getpid()));
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override {
    unsetenv("STEPTAPE_LOG");
    std::filesystem::remove_all(folder_);
  }

  std::string file() const { return (folder_ / "log.jsonl").string(); }
  Options logged(const std::string& categories) const {
    Options options = quiet();
    options.log = categories + ":" + file();
    return options;
  }

  std::vector<json> events() const {
    std::ifstream stream(file());
    std::vector<json> events;
    for (std::string line; std::getline(stream, line);) events.push_back(json::parse(line));
    return events;
  }
  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const json& event : events()) names.push_back(event["event"]);
    return names;
  }
  json newest() const { return events().empty() ? json() : events().back(); }

  /// What `run` makes a session with this log write to stderr, without the session's number.
  template <typename Run>
  static std::vector<std::string> said(Run run) {
    ::testing::internal::CaptureStderr();
    run();
    std::vector<std::string> lines = lines_of(::testing::internal::GetCapturedStderr());
    for (std::string& line : lines) {
      hide_number(line, "session ");
      hide_number(line, " in ");
    }
    return lines;
  }

  /// Of the number after the last `word`, if there is one, "#" is left.
  static void hide_number(std::string& line, const std::string& word) {
    const std::size_t found = line.rfind(word);
    if (found == std::string::npos) return;
    const std::size_t at = found + word.size();
    const std::size_t digits = std::min(line.find_first_not_of("0123456789", at), line.size()) - at;
    if (digits > 0) line.replace(at, digits, "#");
  }

  std::filesystem::path folder_;
};

TEST_F(EventsTest, AStepIsToldOfUntilItReplaysAndThenNoMore) {
  Session session(logged("all"));
  auto step = session.wrap("twice", sum_of_double);
  for (int i = 0; i < 3; ++i) step(at::rand({4}));
  EXPECT_THAT(names(), ElementsAre("probe", "probe", "planned", "trial_passed"));
  for (int i = 0; i < 10; ++i) step(at::rand({4}));
  EXPECT_EQ(step.stats().replayed, 10U);
  EXPECT_EQ(events().size(), 4U);
}

TEST_F(EventsTest, EachLineOnStderrIsASentence) {
  Options options = quiet();
  options.log = "all";
  Session session(options);
  const std::string place = "events_test.cc:" + std::to_string(__LINE__ + 1);
  auto step = session.wrap("twice", sum_of_double);
  const std::string start = "steptape: session #, step \"twice\" (" + place + "), call ";
  EXPECT_THAT(said([&] {
                for (int i = 0; i < 4; ++i) step(at::rand({4}));
              }),
              ElementsAre(start + "1: record: recorded a probe of 2 ops",
                          start + "2: record: recorded a probe of 2 ops",
                          start + "2: plan: variant 0 planned: 2 ops in 2 calls, in # us",
                          start + "3: verify: the trial of variant 0 passed in # us"));
  const std::vector<std::string> lines = said([&] { step(at::rand({3})); });
  ASSERT_FALSE(lines.empty());
  const Verdict verdict = step.stats().last_verdict;
  const std::string kind =
      verdict.kind == GuardKind::kNone ? "" : std::string(name_of(verdict.kind)) + ": ";
  EXPECT_EQ(lines[0], start + "5: guards: fell back: variant 0: " + kind +
                          "inputs[0].size(0): 4 → 3 (held until 1 call ago)");
  EXPECT_THAT(said([&] { session.invalidate("another model"); }),
              ElementsAre(start + "5: plan: invalidated: another model"));
}

TEST_F(EventsTest, AWarmUpIsCalledOne) {
  AdamTraining taped({}, torch::optim::AdamOptions(1e-3));
  Session session(logged("record"));
  session.track("model", taped.model).track("optimizer", taped.optimizer);
  auto train = session.wrap("train", [&](at::Tensor x, at::Tensor y) { return taped.step(x, y); });
  for (const Batch& batch : make_batches(2)) train(batch.images, batch.labels);
  EXPECT_THAT(names(), ElementsAre("warm_up", "probe"));
  EXPECT_THAT(events()[0]["text"], StartsWith("recorded a warm-up of "));
}

TEST_F(EventsTest, APlanComesWithItsSize) {
  Session session(logged("plan"));
  auto step = session.wrap("twice", sum_of_double);
  for (int i = 0; i < 3; ++i) step(at::rand({4}));
  const json event = newest();
  EXPECT_EQ(event["step"], "twice");
  EXPECT_THAT(std::string(event["place"]), StartsWith("events_test.cc:"));
  EXPECT_GT(event["session"], 0);
  EXPECT_GT(event["time_s"], 1.7e9);
  EXPECT_EQ(event["call"], 2);
  EXPECT_EQ(event["category"], "plan");
  EXPECT_EQ(event["variant"], 0);
  EXPECT_EQ(event["ops"], 2);
  EXPECT_EQ(event["calls"], 2);
  EXPECT_GT(event["us"], 0);
}

TEST_F(EventsTest, AFallbackComesWithItsVerdict) {
  Session session(logged("guards"));
  auto step = session.wrap("twice", sum_of_double);
  for (int i = 0; i < 6; ++i) step(at::rand({4}));
  step(at::rand({3}));
  const Verdict verdict = step.stats().last_verdict;
  const json event = newest();
  EXPECT_EQ(event["event"], "fell_back");
  EXPECT_EQ(event["call"], 7);
  EXPECT_EQ(event["variant"], 0);
  EXPECT_EQ(event["kind"], name_of(verdict.kind));
  EXPECT_EQ(event["path"], "inputs[0].size(0)");
  EXPECT_EQ(event["expected"], "4");
  EXPECT_EQ(event["found"], "3");
  EXPECT_EQ(event["last_held"], 1);
  EXPECT_EQ(event["times"], 1);
}

TEST_F(EventsTest, AFallbackNamesAllVariantsAndOneThatIsServedIsNone) {
  Session session(logged("guards"));
  auto step = session.wrap("twice", sum_of_double);
  for (int i = 0; i < 6; ++i) step(at::rand({4}));
  for (int i = 0; i < 4; ++i) step(at::rand({3}));
  const std::size_t before = events().size();
  step(at::rand({4}));
  step(at::rand({3}));
  EXPECT_EQ(events().size(), before);
  step(at::rand({5}));
  ASSERT_EQ(events().size(), before + 1);
  EXPECT_THAT(std::string(newest()["text"]), StartsWith("fell back: variant 0: "));
  EXPECT_THAT(std::string(newest()["text"]),
              HasSubstr("inputs[0].size(0): 4 → 5 (held until 2 calls ago); variant 1: "));
  EXPECT_THAT(std::string(newest()["text"]),
              EndsWith("inputs[0].size(0): 3 → 5 (held until 1 call ago)"));
}

TEST_F(EventsTest, AFailedTrialIsToldWithTheRefusalAndTheEndOfItsPlan) {
  Session session(logged("verify,plan,refuse"));
  double hidden = 2;
  auto step = session.wrap("scaled", [&](at::Tensor x) { return (x * hidden).sum(); });
  step(at::rand({4}));
  step(at::rand({4}));
  hidden = 3;
  step(at::rand({4}));
  ASSERT_THAT(names(), ElementsAre("planned", "trial_failed", "dropped", "refused"));
  EXPECT_THAT(std::string(events()[1]["text"]),
              StartsWith("the trial of variant 0 failed: results[0]: plan "));
  EXPECT_EQ(events()[2]["text"], "variant 0 dropped after 0 replays: trial_diverged");
  EXPECT_EQ(events()[3]["code"], "trial_diverged");
  EXPECT_THAT(std::string(events()[3]["text"]), StartsWith("refused: trial_diverged: results[0]"));
}

TEST_F(EventsTest, AuditsAreTold) {
  Options options = logged("verify");
  options.verify.rate = 1;
  options.on_divergence = OnDivergence::kReport;
  Session session(options);
  double hidden = 2;
  auto step = session.wrap("scaled", [&](at::Tensor x) { return (x * hidden).sum(); });
  for (int i = 0; i < 4; ++i) step(at::rand({4}));
  hidden = 3;
  step(at::rand({4}));
  EXPECT_THAT(names(), ElementsAre("trial_passed", "audit_passed", "audit_failed"));
}

TEST_F(EventsTest, ARefusalIsToldWhenItIsFoundAndNotInEachEagerCall) {
  Session session(logged("refuse"));
  at::Tensor untracked = at::zeros({4});
  auto step = session.wrap("adds", [&](at::Tensor x) { return untracked.add_(x).sum(); });
  for (int i = 0; i < 4; ++i) step(at::rand({4}));
  const std::size_t told = events().size();
  EXPECT_GT(told, 0U);
  EXPECT_EQ(events()[0]["code"], "untracked_write") << step.explain();
  for (int i = 0; i < 20; ++i) step(at::rand({4}));
  EXPECT_EQ(events().size(), told);
  EXPECT_GE(step.stats().refusals[0].times, 20U);
}

TEST_F(EventsTest, TheTraceIsToldOfWhetherItWasWrittenOrNot) {
  for (const std::string& trace : {(folder_ / "run.tape").string(), std::string("/dev/null/run")}) {
    Options options = logged("trace");
    options.trace = trace;
    Session session(options);
    auto step = session.wrap("twice", sum_of_double);
    for (int i = 0; i < 3; ++i) step(at::rand({4}));
  }
  ASSERT_THAT(names(), ElementsAre("written", "not_written"));
  EXPECT_EQ(events()[0]["text"], "trace written to " + (folder_ / "run.tape").string());
  EXPECT_THAT(std::string(events()[1]["text"]), StartsWith("trace not written: "));
}

TEST_F(EventsTest, TheEnvironmentAsksForAllSessionsThatSayNothing) {
  setenv("STEPTAPE_LOG", ("record:" + file()).c_str(), 1);
  Session session(quiet());
  auto step = session.wrap("twice", sum_of_double);
  step(at::rand({4}));
  EXPECT_THAT(names(), ElementsAre("probe"));
}

TEST_F(EventsTest, AnOptionWinsOverTheEnvironment) {
  setenv("STEPTAPE_LOG", ("all:" + file()).c_str(), 1);
  Options options = quiet();
  options.log = "none";
  Session session(options);
  auto step = session.wrap("twice", sum_of_double);
  EXPECT_THAT(said([&] { step(at::rand({4})); }), IsEmpty());
  EXPECT_THAT(names(), IsEmpty());
}

TEST_F(EventsTest, NothingIsSaidUnlessAskedFor) {
  EXPECT_THAT(said([&] {
                Session session(quiet());
                auto step = session.wrap("twice", sum_of_double);
                for (int i = 0; i < 4; ++i) step(at::rand({4}));
                step(at::rand({3}));
              }),
              IsEmpty());
}

TEST_F(EventsTest, AnUnknownCategoryIsAnErrorOfTheOption) {
  Options options;
  options.log = "guards, plans";
  try {
    const Session session(options);
    FAIL() << "taken";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_STREQ(error.what(),
                 "log: there is no category \"plans\"; there are guards, plan, verify, record, "
                 "refuse, trace, all and none");
  }
}

TEST_F(EventsTest, AFileNeedsAName) {
  Options options;
  options.log = "all:";
  EXPECT_THROW(Session{options}, Error);
}

TEST_F(EventsTest, AnUnknownCategoryInTheEnvironmentIsSaidOnceAndNothingIsLogged) {
  setenv("STEPTAPE_LOG", "gards", 1);
  EXPECT_THAT(said([&] {
                for (int i = 0; i < 2; ++i) {
                  Session session(quiet());
                  auto step = session.wrap("twice", sum_of_double);
                  step(at::rand({4}));
                }
              }),
              ElementsAre("steptape: STEPTAPE_LOG: there is no category \"gards\"; there are "
                          "guards, plan, verify, record, refuse, trace, all and none; nothing is "
                          "logged"));
}

TEST_F(EventsTest, AFileThatCannotBeWrittenIsSaidOnceAndTheStepGoesOn) {
  const std::string missing = (folder_ / "missing" / "log.jsonl").string();
  const std::uint64_t lost = counters().log_lines_lost;
  Options options = quiet();
  options.log = "all:" + missing;
  EXPECT_THAT(said([&] {
                Session session(options);
                Session other(options);
                auto step = session.wrap("twice", sum_of_double);
                for (int i = 0; i < 4; ++i)
                  EXPECT_TRUE(same_bits(step(at::ones({4})), at::full({}, 8.0F)));
                EXPECT_THAT(session.explain(), EndsWith("log not written: " + missing +
                                                        ": No such file or directory\n"));
              }),
              ElementsAre("steptape: log not written: " + missing + ": No such file or directory"));
  EXPECT_EQ(counters().log_lines_lost - lost, 4U);
}

TEST_F(EventsTest, AFullDeviceCostsLinesAndNothingElse) {
  const std::uint64_t lost = counters().log_lines_lost;
  Options options = quiet();
  options.log = "record:/dev/full";
  EXPECT_THAT(said([&] {
                Session session(options);
                auto step = session.wrap("twice", sum_of_double);
                for (int i = 0; i < 2; ++i) step(at::rand({4}));
              }),
              ElementsAre("steptape: log not written: /dev/full: No space left on device"));
  EXPECT_EQ(counters().log_lines_lost - lost, 2U);
}

TEST_F(EventsTest, APipeIsNotWaitedFor) {
  const std::string pipe = (folder_ / "pipe").string();
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  Options options = quiet();
  options.log = "all:" + pipe;
  ::testing::internal::CaptureStderr();
  Session session(options);
  ::testing::internal::GetCapturedStderr();
  auto step = session.wrap("twice", sum_of_double);
  step(at::rand({4}));
  EXPECT_THAT(session.explain(), HasSubstr("log not written: " + pipe));
}

TEST_F(EventsTest, ANameMayHoldAnyByte) {
  const std::string name = "a\"b\nc\x1b[31m\xff";
  Session session(logged("record"));
  auto step = session.wrap(name, sum_of_double);
  step(at::rand({4}));
  ASSERT_EQ(events().size(), 1U);
  EXPECT_EQ(events()[0]["step"], "a\"b\nc\x1b[31m\uFFFD");
  Options options = quiet();
  options.log = "record";
  Session spoken(options);
  auto other = spoken.wrap(name, sum_of_double);
  const std::vector<std::string> lines = said([&] { other(at::rand({4})); });
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_THAT(lines[0], StartsWith("steptape: session #, step \"a\"b c [31m\xff\" ("));
}

TEST_F(EventsTest, SessionsOfTwoThreadsMixNoLines) {
  constexpr int kRounds = 20;
  const auto train = [&](const std::string& name) {
    for (int i = 0; i < kRounds; ++i) {
      Session session(logged("all"));
      auto step = session.wrap(name, sum_of_double);
      for (int call = 0; call < 4; ++call) step(at::ones({4}));
      session.invalidate(std::string(200, 'w'));
    }
  };
  std::thread first(train, "first"), second(train, "second");
  first.join();
  second.join();
  std::map<std::string, int> counts;
  for (const json& event : events()) ++counts[event["step"]];
  EXPECT_EQ(counts["first"], 5 * kRounds);
  EXPECT_EQ(counts["second"], 5 * kRounds);
}

}  // namespace
}  // namespace steptape::tests
