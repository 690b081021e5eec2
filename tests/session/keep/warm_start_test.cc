#include <gmock/gmock.h>
#include <torch/nn/functional/loss.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>

#include "storage/ledger/ledger_reader.h"
#include "storage/trace/reader.h"
#include "storage/trace/writer.h"
#include "tests/session/training.h"

namespace steptape::tests {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

/// Trainings that find a trace at the place of theirs.
class WarmStartTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(::testing::TempDir()) /
              ("steptape_warm_start_" + std::to_string(getpid()));
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string path(const std::string& name = "run.tape") const { return (folder_ / name).string(); }
  std::vector<std::string> files() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
      names.push_back(entry.path().filename().string());
    }
    std::ranges::sort(names);
    return names;
  }
  Options at_path() const {
    Options options = quiet();
    options.trace = path();
    return options;
  }

  struct Run {
    Stats stats;
    std::string text;  ///< Session::explain
    std::vector<at::Tensor> left;
  };
  struct Program {
    double rate = 0.01;
    double scale = 1;  ///< a constant of the step
    std::int64_t batch = 16;
    int calls = 12;
    std::function<double(int)> hidden = {};  ///< a number that the step takes from elsewhere
  };
  static Run train(const Options& options, const Program& program) {
    AdamTraining training({}, torch::optim::AdamOptions(program.rate));
    Session session(options);
    session.track("model", *training.model).track("optimizer", training.optimizer);
    int call = 0;
    auto step = session.wrap("train", [&](at::Tensor images, at::Tensor labels) {
      training.optimizer.zero_grad();
      const double factor = program.hidden ? program.hidden(call) : program.scale;
      at::Tensor loss =
          torch::nn::functional::cross_entropy(training.model->forward(images), labels) * factor;
      loss.backward();
      training.optimizer.step();
      return loss;
    });
    const std::vector<Batch> batches = make_batches(4, program.batch);
    Run run;
    for (call = 0; call < program.calls; ++call) {
      const Batch& batch = batches[call % batches.size()];
      run.left.push_back(step(batch.images, batch.labels));
    }
    for (const at::Tensor& tensor : visible_state(*training.model)) run.left.push_back(tensor);
    run.stats = step.stats();
    run.text = session.explain();
    EXPECT_EQ(run.stats.trace_problem, "");
    return run;
  }
  Run train() const { return train(at_path(), {}); }

  std::filesystem::path folder_;
};

TEST_F(WarmStartTest, AProgramThatAgreesWithItsTraceNeedsOneProbe) {
  const Run cold = train();
  EXPECT_EQ(cold.stats.recorded, 3u);  // a warm-up and two probes
  EXPECT_FALSE(cold.stats.variants.at(0).is_warm_start);
  const Run warm = train();
  EXPECT_EQ(warm.stats.recorded, 3u);  // a warm-up, a probe, and a proof of a third step count
  EXPECT_EQ(warm.stats.trials, 1u);
  EXPECT_EQ(warm.stats.replayed, cold.stats.replayed);
  EXPECT_TRUE(warm.stats.variants.at(0).is_warm_start);
  EXPECT_THAT(warm.text, HasSubstr("one probe agreed with the trace of an earlier run"));
  EXPECT_TRUE(all_same_bits(warm.left, cold.left));
  // the trace is this run's, and there is no other
  EXPECT_THAT(files(), ElementsAre("run.tape", "run.tape.ledger", "run.tape.ledger.1"));
  EXPECT_EQ(train().stats.recorded, 3u);
}

TEST_F(WarmStartTest, AnotherShapeOfTheSameOpsStartsWarmAndLeavesTheTraceThere) {
  train();
  const std::string before = [&] {
    std::ifstream file(path(), std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(file), {});
  }();
  const Run run = train(at_path(), {.batch = 8});
  EXPECT_TRUE(run.stats.variants.at(0).is_warm_start);
  EXPECT_TRUE(all_same_bits(run.left, train(quiet(), {.batch = 8}).left));
  EXPECT_THAT(run.text, HasSubstr("trace of an earlier run: kept as " + path("run.tape.1")));
  std::ifstream kept(path("run.tape.1"), std::ios::binary);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(kept), {}), before);
}

TEST_F(WarmStartTest, AnotherProgramStartsColdAndKeepsTheTraceOfTheOtherBesideIt) {
  train();
  const Run run = train(at_path(), {.scale = 2});
  EXPECT_EQ(run.stats.recorded, 3u);
  EXPECT_FALSE(run.stats.variants.at(0).is_warm_start);
  EXPECT_THAT(files(),
              ElementsAre("run.tape", "run.tape.1", "run.tape.ledger", "run.tape.ledger.1"));
  EXPECT_NE(storage::read(path()), storage::read(path("run.tape.1")));
  // trace and ledger of one run have one number
  train();
  train();
  const Run other = train(at_path(), {.scale = 3});
  EXPECT_THAT(other.text, HasSubstr("kept as " + path("run.tape.4")));
  EXPECT_EQ(storage::ledger_beside(path("run.tape.4")), path("run.tape.ledger.4"));
  EXPECT_TRUE(std::filesystem::exists(path("run.tape.ledger.4")));
}

TEST_F(WarmStartTest, AnotherRateIsTheSamePlan) {
  train();
  const Run run = train(at_path(), {.rate = 0.02});
  EXPECT_TRUE(run.stats.variants.at(0).is_warm_start);
  EXPECT_FALSE(std::filesystem::exists(path("run.tape.1")));
  EXPECT_TRUE(all_same_bits(run.left, train(quiet(), {.rate = 0.02}).left));
}

TEST_F(WarmStartTest, RecordingsThatWereAskedForAreNeverWrittenOver) {
  Options options = at_path();
  options.record.at = {5};
  train(options, {});
  train();
  EXPECT_THAT(storage::read(path("run.tape.1")).steps[0].recordings, Not(IsEmpty()));
  options.record.at = {};
  options.digests = true;
  train(options, {});
  train(options, {});
  // the trace of the first of these two tells what its ops left
  EXPECT_TRUE(std::filesystem::exists(path("run.tape.3")));
}

TEST_F(WarmStartTest, ARunThatGoesOnKeepsItsTrace) {
  train();
  Options options = at_path();
  options.resume = true;
  const Run run = train(options, {.scale = 2});
  EXPECT_EQ(run.stats.recorded, 3u);
  EXPECT_THAT(files(), ElementsAre("run.tape", "run.tape.ledger"));
}

TEST_F(WarmStartTest, AnotherEnvironmentStartsCold) {
  train();
  trace::Trace trace = storage::read(path());
  trace.environment.at(0).value = "1.0";
  storage::write(trace, path());
  const Run run = train();
  EXPECT_EQ(run.stats.recorded, 3u);
  EXPECT_EQ(storage::read(path("run.tape.1")), trace);
}

TEST_F(WarmStartTest, ADamagedTraceIsKept) {
  train();
  std::filesystem::resize_file(path(), 1000);
  const Run run = train();
  EXPECT_EQ(run.stats.recorded, 3u);
  EXPECT_EQ(std::filesystem::file_size(path("run.tape.1")), 1000u);
  EXPECT_TRUE(all_same_bits(run.left, train(quiet(), {}).left));
}

TEST_F(WarmStartTest, AFileThatIsNoTraceIsLeftAlone) {
  std::ofstream(path()) << "a text of mine";
  AdamTraining training({}, torch::optim::AdamOptions(0.01));
  Session session(at_path());
  session.track("model", *training.model).track("optimizer", training.optimizer);
  auto step =
      session.wrap("train", [&](at::Tensor x, at::Tensor y) { return training.step(x, y); });
  const Batch batch = make_batches(1)[0];
  for (int call = 0; call < 8; ++call) step(batch.images, batch.labels);
  EXPECT_THAT(step.stats().trace_problem, HasSubstr("exists and is not a trace"));
  EXPECT_GT(step.stats().replayed, 0u);
  EXPECT_EQ(std::filesystem::file_size(path()), 14u);
}

/// One probe sees less than two: the trial sees the rest, and two probes say what it was.
TEST_F(WarmStartTest, AProgramThatDiffersBehindItsFirstProbeIsFoundOut) {
  train();
  const auto hidden = [](int call) { return call < 2 ? 1.0 : 1.0 + call; };
  const Run run = train(at_path(), {.calls = 20, .hidden = hidden});
  EXPECT_EQ(run.stats.replayed, 0u);
  std::vector<RefusalCode> codes;
  for (const CountedRefusal& counted : run.stats.refusals) codes.push_back(counted.refusal.code);
  EXPECT_THAT(codes, ElementsAre(RefusalCode::kTrialDiverged, RefusalCode::kScalarVaries));
  EXPECT_TRUE(all_same_bits(run.left, train(quiet(), {.calls = 20, .hidden = hidden}).left));
}

TEST_F(WarmStartTest, WhatIsInvalidatedIsProbedTwice) {
  train();
  AdamTraining training({}, torch::optim::AdamOptions(0.01));
  Session session(at_path());
  session.track("model", *training.model).track("optimizer", training.optimizer);
  auto step =
      session.wrap("train", [&](at::Tensor x, at::Tensor y) { return training.step(x, y); });
  const Batch batch = make_batches(1)[0];
  step(batch.images, batch.labels);
  session.invalidate("the program knows why");
  for (int call = 0; call < 8; ++call) step(batch.images, batch.labels);
  EXPECT_FALSE(step.stats().variants.at(0).is_warm_start);
}

}  // namespace
}  // namespace steptape::tests
