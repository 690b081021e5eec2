#include <gmock/gmock.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <limits>

#include "storage/trace/reader.h"
#include "tests/session/training.h"

namespace steptape::tests {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::Contains;
using ::testing::ContainsRegex;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::Gt;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::StartsWith;

/// Options::record.
class RecordTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(::testing::TempDir()) /
              ("steptape_record_" + std::to_string(getpid()));
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string path(const std::string& name = "run.tape") const { return (folder_ / name).string(); }
  Options asking(const Record& record) const {
    Options options = quiet();
    options.trace = path();
    options.record = record;
    return options;
  }

  /// Trains, and gives the losses.
  static std::vector<at::Tensor> train(const Options& options, int calls) {
    AdamTraining training({}, torch::optim::AdamOptions(0.01));
    Session session(options);
    session.track("model", *training.model).track("optimizer", training.optimizer);
    auto step = session.wrap("train", [&](at::Tensor images, at::Tensor labels) {
      return training.step(images, labels);
    });
    const std::vector<Batch> batches = make_batches(4);
    std::vector<at::Tensor> left;
    for (int call = 0; call < calls; ++call) {
      const Batch& batch = batches[call % batches.size()];
      left.push_back(step(batch.images, batch.labels));
    }
    const Stats stats = step.stats();
    EXPECT_EQ(stats.trace_problem, "");
    EXPECT_EQ(stats.steps, static_cast<std::uint64_t>(calls));
    for (const at::Tensor& tensor : visible_state(*training.model)) left.push_back(tensor);
    return left;
  }

  /// Of the recordings in the trace that no plan was made of.
  std::vector<std::uint64_t> calls_in(const trace::Trace& trace) const {
    std::vector<std::uint64_t> calls;
    for (const trace::Recording& recording : trace.steps.at(0).recordings) {
      if (recording.status == trace::Status::kProbe) calls.push_back(recording.call);
    }
    return calls;
  }
  std::vector<std::uint64_t> calls() const { return calls_in(storage::read(path())); }

  std::filesystem::path folder_;
};

TEST_F(RecordTest, AStepThatNeverReplaysLeavesWhy) {
  Options options = quiet();
  options.trace = path();
  at::Tensor total = at::zeros({3});
  {
    Session session(options);
    auto step = session.wrap("adds", [&](at::Tensor x) { return total.add_(x); });
    for (int i = 0; i < 20; ++i) step(at::full({3}, i));
  }
  const trace::Trace left = storage::read(path());
  const trace::Account& account = left.steps[0].account;
  EXPECT_EQ(account.calls(), 20U);
  EXPECT_EQ(account.replayed, 0U);
  ASSERT_THAT(account.reasons, testing::Not(IsEmpty()));
  EXPECT_TRUE(account.reasons[0].is_refusal);
  EXPECT_EQ(account.reasons[0].code, "untracked_write");
  EXPECT_EQ(account.reasons[0].where, "aten::add_");
  EXPECT_THAT(account.reasons[0].remedy, HasSubstr("session.track"));
}

TEST_F(RecordTest, WhatIsSavedToTheTraceIsNotReplacedAtTheEnd) {
  Options options = quiet();
  options.trace = path();
  {
    AdamTraining training({}, torch::optim::AdamOptions(0.01));
    Session session(options);
    session.track("model", *training.model).track("optimizer", training.optimizer);
    auto step = session.wrap("train", [&](at::Tensor images, at::Tensor labels) {
      return training.step(images, labels);
    });
    const std::vector<Batch> batches = make_batches(4);
    for (int call = 0; call < 8; ++call) step(batches[call % 4].images, batches[call % 4].labels);
    session.save(path(), Session::State::kWith);
  }
  const trace::Trace left = storage::read(path());
  EXPECT_THAT(left.state, testing::Not(IsEmpty()));
  EXPECT_EQ(left.steps[0].account.calls(), 8U);
}

TEST_F(RecordTest, KeepsTheCallsThatAreAskedForAndThePlans) {
  Options options = asking({.first = 3, .every = 10, .at = {17, 18}});
  options.digests = true;
  train(options, 35);
  const trace::Trace trace = storage::read(path());
  // call 1 creates state, and is a warm-up
  EXPECT_THAT(calls_in(trace), ElementsAre(2, 3, 10, 17, 18, 20, 30));
  std::vector<trace::Status> statuses;
  for (const trace::Recording& recording : trace.steps[0].recordings) {
    statuses.push_back(recording.status);
    EXPECT_EQ(recording.op_digests.size(), recording.ops.size());
  }
  EXPECT_THAT(statuses, Contains(trace::Status::kTrusted));
  EXPECT_FALSE(std::filesystem::exists(path("run.tape.part")));
}

/// What the environment asks for while it lives.
class Asked {
 public:
  explicit Asked(const std::string& text) { setenv("STEPTAPE_RECORD", text.c_str(), 1); }
  ~Asked() { unsetenv("STEPTAPE_RECORD"); }
  Asked(const Asked&) = delete;
  Asked& operator=(const Asked&) = delete;
};

TEST_F(RecordTest, TheEnvironmentAsksForMore) {
  const Asked asked("at=17,digests,again");
  train(asking({.first = 2}), 20);
  EXPECT_FALSE(std::filesystem::exists(path()));
  const trace::Trace trace = storage::read(path("run.again.tape"));
  EXPECT_THAT(calls_in(trace), ElementsAre(2, 17));
  EXPECT_FALSE(trace.steps[0].recordings.back().op_digests.empty());
  EXPECT_TRUE(std::filesystem::exists(path("run.again.tape.ledger")));
}

TEST_F(RecordTest, TheEnvironmentNamesTheTraceOfASessionThatKeepsNone) {
  testing::internal::CaptureStderr();
  {
    const Asked asked("at=4,digests");
    train(quiet(), 6);
    train(quiet(), 6);
  }
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "steptape: STEPTAPE_RECORD: a session keeps no trace, and records nothing for it; "
            "`steptape record -o` names one\n");
  const Asked asked("at=4:" + path("named.tape"));
  train(quiet(), 6);
  std::vector<std::string> names;
  for (const auto& file : std::filesystem::directory_iterator(folder_)) {
    if (file.path().extension() == ".tape") names.push_back(file.path().filename());
  }
  // a session that is not the first of its process
  EXPECT_THAT(names, ElementsAre(AnyOf("named.tape", ContainsRegex("^named.session[0-9]+.tape$"))));
}

TEST_F(RecordTest, WhatTheEnvironmentSaysWrongIsToldAndIgnored) {
  testing::internal::CaptureStderr();
  {
    const Asked asked("at=4,digest");
    train(asking({.at = {6}}), 8);
  }
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              AllOf(StartsWith("steptape: STEPTAPE_RECORD: \"digest\" is not known; there are "),
                    EndsWith("; nothing is recorded for it\n")));
  EXPECT_THAT(calls(), ElementsAre(6));
}

TEST_F(RecordTest, ASignalThatCannotBeHandledEndsNoTraining) {
  for (const int signal : {SIGKILL, SIGSEGV}) {
    testing::internal::CaptureStderr();
    const Asked asked("signal=" + std::to_string(signal));
    train(asking({.at = {6}}), 8);
    EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("cannot be handled"));
    EXPECT_THROW(Session({.trace = path(), .record = {.on_signal = signal}}), Error);
  }
}

TEST_F(RecordTest, ATraceThatCannotBeKeptIsToldAndCallsAreCountedAllTheSame) {
  Options options = asking({.first = 3});
  options.trace = path("missing/run.tape");
  AdamTraining training({}, torch::optim::AdamOptions(0.01));
  testing::internal::CaptureStderr();
  const Asked asked("digests");
  Session session(options);
  session.track("model", *training.model).track("optimizer", training.optimizer);
  auto step = session.wrap(
      "train", [&](at::Tensor images, at::Tensor labels) { return training.step(images, labels); });
  for (const Batch& batch : make_batches(12)) step(batch.images, batch.labels);
  EXPECT_GE(step.stats().replayed, 5U) << step.explain();
  EXPECT_NE(step.stats().trace_problem, "");
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              AllOf(StartsWith("steptape: STEPTAPE_RECORD: "), HasSubstr("missing/run.tape")));
}

TEST_F(RecordTest, ATraceInOtherHandsIsNotRecordedFor) {
  Options options = asking({.first = 30});
  AdamTraining training({}, torch::optim::AdamOptions(0.01));
  Session first(options), second(options);
  for (Session* session : {&first, &second}) {
    session->track("model", *training.model).track("optimizer", training.optimizer);
  }
  const auto body = [&](at::Tensor images, at::Tensor labels) {
    return training.step(images, labels);
  };
  auto step = first.wrap("train", body), other = second.wrap("train", body);
  const std::vector<Batch> batches = make_batches(4);
  step(batches[0].images, batches[0].labels);
  for (int call = 0; call < 12; ++call) other(batches[1].images, batches[1].labels);
  EXPECT_GE(other.stats().replayed, 5U) << other.explain();
  EXPECT_NE(other.stats().trace_problem, "");
}

TEST_F(RecordTest, TheTraceSaysHowTheProgramWasStarted) {
  train(asking({.at = {6}}), 8);
  const std::vector<trace::Fact> run = storage::read(path()).run;
  const auto command = std::ranges::find(run, "command", &trace::Fact::name);
  ASSERT_NE(command, run.end());
  EXPECT_THAT(command->value, HasSubstr("session_test"));
  const std::string folder = std::filesystem::current_path().string();
  EXPECT_THAT(run, Contains(trace::Fact{"folder", folder}));
}

TEST_F(RecordTest, TimingsSayHowLongEachOpTook) {
  Options options = asking({.at = {6}});
  options.timings = true;
  const std::vector<at::Tensor> timed = train(options, 12);
  EXPECT_TRUE(all_same_bits(timed, train(quiet(), 12)));
  const trace::Trace trace = storage::read(path());
  ASSERT_THAT(trace.steps.at(0).recordings, SizeIs(3));
  for (const trace::Recording& recording : trace.steps[0].recordings) {
    ASSERT_EQ(recording.op_ns.size(), recording.ops.size());
    EXPECT_THAT(recording.op_ns, Each(Gt(0u)));
  }
  train(asking({.at = {6}}), 12);
  EXPECT_THAT(storage::read(path()).steps.at(0).recordings.at(0).op_ns, IsEmpty());
}

TEST_F(RecordTest, ARecordedCallChangesNoBitOfTheTraining) {
  const std::vector<at::Tensor> asked = train(asking({.first = 2, .every = 3}), 40);
  const std::vector<at::Tensor> plain = train(quiet(), 40);
  EXPECT_TRUE(all_same_bits(asked, plain));
}

TEST_F(RecordTest, WhatWasRecordedIsThereWhileTheTrainingRuns) {
  AdamTraining training({}, torch::optim::AdamOptions(0.01));
  Session session(asking({.at = {2, 6}}));
  session.track("model", *training.model).track("optimizer", training.optimizer);
  auto step =
      session.wrap("train", [&](at::Tensor x, at::Tensor y) { return training.step(x, y); });
  const Batch batch = make_batches(1)[0];
  for (int call = 0; call < 8; ++call) step(batch.images, batch.labels);
  // the plans under the trace's own name, the recordings beside it
  EXPECT_THAT(calls(), IsEmpty());
  storage::Report report;
  const auto found = storage::recover(path("run.tape.part"), report);
  ASSERT_TRUE(found);
  EXPECT_THAT(calls_in(*found), Contains(2));
}

TEST_F(RecordTest, TheCallBehindTheFirstResultThatIsNotFiniteIsRecorded) {
  {
    Session session(asking({.on_nonfinite = true}));
    auto step = session.wrap("double", [](at::Tensor x) { return x * 2; });
    const at::Tensor x = at::ones(3);
    for (int call = 1; call <= 5; ++call) step(x);
    const at::Tensor bad = at::full({3}, std::numeric_limits<float>::infinity());
    for (int call = 6; call <= 9; ++call) step(bad);
    step(x);
    step(bad);
    step(bad);
    EXPECT_EQ(step.stats().recorded, 4u);
  }
  EXPECT_THAT(calls(), ElementsAre(7, 12));
}

TEST_F(RecordTest, TheCallBehindASignalIsRecorded) {
  {
    Session session(asking({.on_signal = SIGUSR2}));
    auto step = session.wrap("double", [](at::Tensor x) { return x * 2; });
    const at::Tensor x = at::ones(3);
    for (int call = 1; call <= 12; ++call) {
      if (call == 5 || call == 9) std::raise(SIGUSR2);
      step(x);
    }
  }
  EXPECT_THAT(calls(), ElementsAre(5, 9));
}

TEST_F(RecordTest, AStepThatCannotBeReplayedIsRecordedAllTheSame) {
  {
    Session session(asking({.at = {20}}));
    double count = 0;
    auto step = session.wrap("count", [&](at::Tensor x) { return x * ++count; });
    for (int call = 1; call <= 25; ++call) step(at::ones(3));
    EXPECT_EQ(step.stats().replayed, 0u);
  }
  EXPECT_THAT(calls(), ElementsAre(20));
}

TEST_F(RecordTest, IsRefusedWithoutAPlaceAndForASignalThatNobodyCanHandle) {
  const auto refusal = [](const Options& options) -> std::string {
    try {
      const Session session(options);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  Options nowhere = quiet();
  nowhere.record.first = 1;
  EXPECT_THAT(refusal(nowhere), HasSubstr("there is no Options::trace to keep them in"));
  EXPECT_THAT(refusal(asking({.on_signal = SIGKILL})), HasSubstr("signal 9 cannot be handled"));
  EXPECT_THAT(refusal(asking({.on_signal = 4000})), HasSubstr("signal 4000 cannot be handled"));
}

}  // namespace
}  // namespace steptape::tests
