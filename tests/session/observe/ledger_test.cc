#include <gmock/gmock.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>

#include "storage/ledger/ledger_reader.h"
#include "storage/trace/reader.h"
#include "tests/session/training.h"

namespace steptape::tests {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Ne;
using ::testing::SizeIs;
using trace::CallOutcome;
using trace::LedgerLine;

constexpr const char* kRankVariables[] = {"RANK",
                                          "WORLD_SIZE",
                                          "OMPI_COMM_WORLD_RANK",
                                          "OMPI_COMM_WORLD_SIZE",
                                          "SLURM_PROCID",
                                          "SLURM_NTASKS",
                                          "PMI_RANK",
                                          "PMI_SIZE"};

/// Trainings that leave a ledger.
class CallLedgerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : kRankVariables) unsetenv(name);
    folder_ = std::filesystem::path(::testing::TempDir()) /
              ("steptape_ledger_" + std::to_string(getpid()));
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string path(const std::string& name = "run.tape") const { return (folder_ / name).string(); }
  Options kept(const std::string& name = "run.tape") const {
    Options options = quiet();
    options.trace = path(name);
    return options;
  }
  std::vector<LedgerLine> lines(const std::string& name = "run.tape.ledger") const {
    return storage::read_ledger(path(name)).ledger.lines;
  }
  std::vector<std::string> files() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
      names.push_back(entry.path().filename().string());
    }
    std::ranges::sort(names);
    return names;
  }

  /// Trains for `calls` steps; `change` may do something to the training before each of them.
  template <typename Change>
  Stats train(const Options& options, int calls, Change change) const {
    SgdTraining training({}, torch::optim::SGDOptions(0.1).momentum(0.9));
    Session session(options);
    session.track("model", *training.model).track("optimizer", training.optimizer);
    auto step = session.wrap("train", [&](at::Tensor images, at::Tensor labels) {
      return training.step(images, labels);
    });
    const std::vector<Batch> batches = make_batches(4);
    for (int call = 0; call < calls; ++call) {
      change(training, call);
      const Batch& batch = batches[call % batches.size()];
      step(batch.images, batch.labels);
    }
    return step.stats();
  }
  Stats train(const Options& options, int calls) const {
    return train(options, calls, [](auto&, int) {});
  }

  std::filesystem::path folder_;
};

std::vector<CallOutcome> outcomes_of(const std::vector<LedgerLine>& lines) {
  std::vector<CallOutcome> outcomes;
  for (const LedgerLine& line : lines) outcomes.push_back(line.outcome);
  return outcomes;
}

TEST_F(CallLedgerTest, HasALineForEachCallWhateverBecameOfIt) {
  train(kept(), 8, [](SgdTraining& training, int call) {
    if (call == 6) training.model->eval();
    if (call == 7) training.model->train();
  });
  const std::vector<LedgerLine> found = lines();
  EXPECT_THAT(outcomes_of(found),
              ElementsAre(CallOutcome::kRecorded, CallOutcome::kRecorded, CallOutcome::kRecorded,
                          CallOutcome::kTrial, CallOutcome::kReplayed, CallOutcome::kReplayed,
                          CallOutcome::kRecorded, CallOutcome::kReplayed));
  for (std::size_t i = 0; i < found.size(); ++i) EXPECT_EQ(found[i].call, i + 1);
  EXPECT_EQ(found[6].verdict, GuardKind::kTraining);
  EXPECT_EQ(found[5].verdict, GuardKind::kNone);
  EXPECT_EQ(found[4].variant, 0);
  EXPECT_EQ(found[6].variant, LedgerLine::kNoVariant);
  EXPECT_THAT(found, Each(Field(&LedgerLine::results, Ne(0u))));
  EXPECT_THAT(found, Each(Field(&LedgerLine::parameters, 0u)));
}

TEST_F(CallLedgerTest, ReplaysHaveTheResultsOfEagerCalls) {
  train(kept(), 30);
  Options eager = kept("eager.tape");
  eager.max_variants = 0;
  const Stats stats = train(eager, 30);
  EXPECT_EQ(stats.replayed, 0u);
  const std::vector<LedgerLine> replayed = lines();
  const std::vector<LedgerLine> other = lines("eager.tape.ledger");
  ASSERT_EQ(replayed.size(), other.size());
  for (std::size_t i = 0; i < other.size(); ++i) {
    EXPECT_EQ(replayed[i].results, other[i].results) << i;
  }
}

TEST_F(CallLedgerTest, TheFirstOtherResultIsThatOfTheCallThatDiffers) {
  train(kept(), 20);
  train(kept("changed.tape"), 20, [](SgdTraining& training, int call) {
    if (call != 10) return;
    static_cast<torch::optim::SGDOptions&>(training.optimizer.param_groups()[0].options()).lr(0.01);
  });
  const std::vector<LedgerLine> a = lines();
  const std::vector<LedgerLine> b = lines("changed.tape.ledger");
  for (std::size_t i = 0; i < a.size(); ++i) {
    // the loss is of the parameters before the update
    EXPECT_EQ(a[i].results == b[i].results, i <= 10) << i;
  }
}

TEST_F(CallLedgerTest, TakesDigestsOfStateWhereTheyAreAskedFor) {
  for (const char* name : {"a.tape", "b.tape", "perturbed.tape"}) {
    Options options = kept(name);
    options.digests = true;
    train(options, 10, [name](SgdTraining& training, int call) {
      if (name == std::string("perturbed.tape") && call == 6) {
        const at::NoGradGuard no_grad;
        training.model->fc2->bias[3].add_(1e-6);
      }
    });
  }
  const std::vector<LedgerLine> a = lines("a.tape.ledger");
  const std::vector<LedgerLine> b = lines("b.tape.ledger");
  const std::vector<LedgerLine> perturbed = lines("perturbed.tape.ledger");
  for (std::size_t i = 0; i < a.size(); ++i) {
    for (const auto part : {&LedgerLine::inputs, &LedgerLine::results, &LedgerLine::gradients,
                            &LedgerLine::parameters}) {
      EXPECT_NE(a[i].*part, 0u) << i;
      EXPECT_EQ(a[i].*part, b[i].*part) << i;
    }
    EXPECT_NE(a[i].generators, 0u);
    EXPECT_EQ(a[i].generators, b[i].generators);
    EXPECT_EQ(a[i].inputs, perturbed[i].inputs);
    EXPECT_EQ(a[i].parameters == perturbed[i].parameters, i < 6) << i;
  }
}

TEST_F(CallLedgerTest, RecordingsHaveDigestsOfTheirOpsWhereTheyAreAskedFor) {
  Options options = kept();
  options.digests = true;
  train(options, 6);
  train(kept("without.tape"), 6);
  const trace::Trace with = storage::read(path());
  const trace::Trace without = storage::read(path("without.tape"));
  std::vector<std::uint64_t> calls;
  for (const trace::Recording& recording : with.steps[0].recordings) {
    EXPECT_EQ(recording.op_digests.size(), recording.ops.size());
    EXPECT_THAT(recording.op_digests, Each(Ne(trace::Digest{})));
    for (const trace::Buffer& buffer : recording.buffers) {
      EXPECT_TRUE(buffer.digest || buffer.role != trace::Role::kParameter) << buffer.path;
    }
    calls.push_back(recording.call);
  }
  EXPECT_THAT(calls, ElementsAre(1, 3));
  EXPECT_THAT(without.steps[0].recordings, Each(Field(&trace::Recording::op_digests, IsEmpty())));
}

TEST_F(CallLedgerTest, AnEarlierRunIsKeptAndTheSameRunIsGoneOnWith) {
  train(kept(), 5);
  train(kept(), 3);
  EXPECT_THAT(files(), ElementsAre("run.tape", "run.tape.ledger", "run.tape.ledger.1"));
  EXPECT_THAT(lines("run.tape.ledger.1"), SizeIs(5));
  EXPECT_THAT(lines(), SizeIs(3));
  Options again = kept();
  again.resume = true;
  train(again, 6);
  const std::vector<LedgerLine> found = lines();
  ASSERT_THAT(found, SizeIs(9));
  EXPECT_EQ(found.back().call, 9u);
  // its first probe agrees with the first run's trace
  EXPECT_EQ(storage::read(path()).steps[0].recordings.back().call, 5u);
}

TEST_F(CallLedgerTest, APathThatAnotherSessionWritesIsLeftAlone) {
  Session first(kept());
  auto one = first.wrap("train", [](at::Tensor x) { return x * 2; });
  one(at::ones(3));
  const Stats stats = train(kept(), 10);
  EXPECT_THAT(stats.trace_problem, HasSubstr("is open in another process or session"));
  EXPECT_THAT(stats.ledger_problem, HasSubstr("is open in another process or session"));
  EXPECT_EQ(stats.replayed, 6u);
  EXPECT_THAT(files(), ElementsAre("run.tape.ledger"));
}

TEST_F(CallLedgerTest, AFolderThatIsNotThereStopsNothingAndIsTold) {
  Options options = quiet();
  options.trace = path("no/such/run.tape");
  const Stats stats = train(options, 10);
  EXPECT_EQ(stats.replayed, 6u);
  EXPECT_THAT(stats.ledger_problem, HasSubstr("No such file or directory"));
}

TEST_F(CallLedgerTest, IsLeftOutWhereNobodyWantsIt) {
  Options options = kept();
  options.ledger = false;
  train(options, 6);
  EXPECT_THAT(files(), ElementsAre("run.tape"));
}

TEST_F(CallLedgerTest, AProcessOfSeveralHasFilesOfItsOwn) {
  struct Case {
    const char *rank, *world;
  };
  for (const Case& of : {Case{"RANK", "WORLD_SIZE"}, Case{"SLURM_PROCID", "SLURM_NTASKS"}}) {
    setenv(of.rank, "3", 1);
    setenv(of.world, "8", 1);
    train(kept(), 6);
    EXPECT_THAT(files(), ElementsAre("run.rank3.tape", "run.rank3.tape.ledger"));
    std::map<std::string, std::string> run;
    for (const trace::Fact& fact : storage::read(path("run.rank3.tape")).run) {
      run[fact.name] = fact.value;
    }
    EXPECT_EQ(run["rank"], "3");
    EXPECT_EQ(run["world"], "8");
    unsetenv(of.rank);
    unsetenv(of.world);
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  setenv("RANK", "0", 1);
  setenv("WORLD_SIZE", "1", 1);
  train(kept(), 6);
  EXPECT_THAT(files(), ElementsAre("run.tape", "run.tape.ledger"));
}

TEST_F(CallLedgerTest, ACallThatThrewHasNoLine) {
  {
    Session session(kept());
    auto step = session.wrap("train", [](at::Tensor x, bool must_throw) {
      if (must_throw) throw std::runtime_error("no");
      return x * 2;
    });
    step(at::ones(3), false);
    EXPECT_THROW(step(at::ones(3), true), std::runtime_error);
    step(at::ones(3), false);
  }
  EXPECT_THAT(lines(), SizeIs(2));
}

TEST_F(CallLedgerTest, StepsInsideOthersHaveLinesOfTheirOwn) {
  {
    Session session(kept());
    auto inner = session.wrap("inner", [](at::Tensor x) { return x + 1; });
    auto outer = session.wrap("outer", [&](at::Tensor x) { return inner(x) * 2; });
    for (int i = 0; i < 3; ++i) outer(at::ones(3));
  }
  const trace::Ledger ledger = storage::read_ledger(path("run.tape.ledger")).ledger;
  std::map<std::string, std::uint64_t> calls;
  for (const LedgerLine& line : ledger.lines) calls[ledger.steps[line.step]] = line.call;
  EXPECT_EQ(calls["inner"], 3u);
  EXPECT_EQ(calls["outer"], 3u);
}

}  // namespace
}  // namespace steptape::tests
