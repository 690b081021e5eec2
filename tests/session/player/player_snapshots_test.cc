#include <gmock/gmock.h>
#include <sys/resource.h>

#include <csignal>
#include <fstream>
#include <mutex>
#include <nlohmann/json.hpp>

#include "steptape/player.h"
#include "tests/session/taught.h"

namespace steptape::tests {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class PlayerSnapshotsTest : public TaughtTest {
 protected:
  std::string folder() const { return path("snapshots"); }
  std::vector<std::string> files() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder())) {
      names.push_back(entry.path().filename().string());
    }
    std::ranges::sort(names);
    std::erase(names, "lock");
    return names;
  }
  static void learn(Player& player, std::size_t from, std::size_t to) {
    const std::vector<Batch> batches = make_batches(to, 16, 6);
    for (std::size_t i = from; i < to; ++i) {
      player.step("learn")(batches[i].images, batches[i].labels);
    }
  }
};

TEST_F(PlayerSnapshotsTest, EveryFewStepsAndTheNewestAreLeft) {
  Player player = load(saved());
  player.keep_snapshots({.folder = folder(), .every_steps = 3, .keep = 2});
  learn(player, 0, 10);
  EXPECT_THAT(files(), ElementsAre("snapshot-000000000006.tape", "snapshot-000000000009.tape"));
  EXPECT_EQ(newest_snapshot(folder()), folder() + "/snapshot-000000000009.tape");
  EXPECT_EQ(player.metrics().snapshots, 3U);
  // steps that write nothing are no reason for one
  const at::Tensor images = make_batches(1)[0].images;
  for (int i = 0; i < 10; ++i) player.step("predict")(images);
  EXPECT_EQ(player.metrics().snapshots, 3U);
}

TEST_F(PlayerSnapshotsTest, GoingOnFromOneIsAsNeverHavingStopped) {
  Player whole = load(saved());
  learn(whole, 0, 12);
  {
    Player player = load(saved());
    player.keep_snapshots({.folder = folder(), .every_steps = 5});
    learn(player, 0, 8);  // and it dies here, after a snapshot of five
  }
  Player player = load(newest_snapshot(folder()));
  EXPECT_EQ(player.step("learn").runs(), 5U);
  player.keep_snapshots({.folder = folder(), .every_steps = 5});
  learn(player, player.step("learn").runs(), 12);
  for (const TensorSpec& spec : whole.state()) {
    EXPECT_TRUE(same_bits(player.tensor(spec.path), whole.tensor(spec.path))) << spec.path;
  }
  EXPECT_THAT(files(), Contains("snapshot-000000000010.tape"));
  EXPECT_EQ(player.step("learn").runs(), whole.step("learn").runs());
}

TEST_F(PlayerSnapshotsTest, ByTime) {
  Player player = load(saved());
  player.keep_snapshots({.folder = folder(), .every_seconds = 1e-9});
  learn(player, 0, 3);
  EXPECT_EQ(player.metrics().snapshots, 3U);
}

TEST_F(PlayerSnapshotsTest, OnDemand) {
  Player player = load(saved());
  EXPECT_THROW(player.snapshot(), Error);
  player.keep_snapshots({.folder = folder()});
  learn(player, 0, 2);
  EXPECT_THAT(files(), IsEmpty());
  const std::string first = player.snapshot();
  EXPECT_EQ(player.snapshot(), first) << "the same state";
  EXPECT_THAT(files(), ElementsAre("snapshot-000000000002.tape"));
}

TEST_F(PlayerSnapshotsTest, ADamagedOneIsPassedOver) {
  Player player = load(saved());
  player.keep_snapshots({.folder = folder(), .every_steps = 1});
  learn(player, 0, 3);
  std::filesystem::resize_file(newest_snapshot(folder()), 1000);
  EXPECT_EQ(newest_snapshot(folder()), folder() + "/snapshot-000000000002.tape");
  std::ofstream(folder() + "/snapshot-9.tape") << "somebody else's";
  std::ofstream(folder() + "/notes.txt") << "likewise";
  EXPECT_EQ(newest_snapshot(folder()), folder() + "/snapshot-000000000002.tape");
  EXPECT_EQ(newest_snapshot(path("nowhere")), "");
}

TEST_F(PlayerSnapshotsTest, AFolderIsOneTrainingsAndOnePlayers) {
  {
    Player player = load(saved());
    player.keep_snapshots({.folder = folder(), .every_steps = 1});
    Player other = load(saved());
    EXPECT_THROW(other.keep_snapshots({.folder = folder()}), Error) << "another player has it";
    player.keep_snapshots({.folder = folder(), .every_steps = 1});
    learn(player, 0, 3);
  }
  Player player = load(saved());
  try {
    player.keep_snapshots({.folder = folder()});
    ADD_FAILURE() << "began anew over a training that went further";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kFailedPrecondition);
    EXPECT_THAT(error.what(), HasSubstr("snapshot-000000000001.tape is of a training"));
  }
  // of the same training; the snapshot may have been saved a second later
  const auto training_of = [](const std::string& origin) {
    return origin.substr(0, origin.find("saved_unix_s"));
  };
  EXPECT_EQ(training_of(load(newest_snapshot(folder())).origin()), training_of(player.origin()));
}

TEST_F(PlayerSnapshotsTest, DamagedOnesAndHalvesOfKilledWritersAreInNobodysWay) {
  {
    Player player = load(saved());
    player.keep_snapshots({.folder = folder(), .every_steps = 1, .keep = 1});
    learn(player, 0, 5);
  }
  std::filesystem::resize_file(folder() + "/snapshot-000000000005.tape", 1000);
  std::ofstream(folder() + "/snapshot-000000000006.tape.tmp.77.1") << "half";
  Player player = load(saved());
  player.keep_snapshots({.folder = folder(), .every_steps = 1, .keep = 1});
  EXPECT_THAT(files(), ElementsAre("snapshot-000000000005.tape"));
  learn(player, 0, 2);
  EXPECT_EQ(newest_snapshot(folder()), folder() + "/snapshot-000000000002.tape");
}

/// A file of no more bytes than so many can be written.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    getrlimit(RLIMIT_FSIZE, &before_);
    handler_ = std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit = {bytes, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }

 private:
  rlimit before_{};
  void (*handler_)(int) = nullptr;
};

TEST_F(PlayerSnapshotsTest, WhereNoneCanBeWrittenTheTrainingGoesOnAndSaysSo) {
  std::vector<std::string> events;
  LoadOptions options;
  options.on_event = [&](const PlayerEvent& event) { events.push_back(event.json()); };
  Player player = load(saved(), options);
  player.keep_snapshots({.folder = folder(), .every_steps = 2});
  learn(player, 0, 2);
  {
    const FileSizeLimit full(512);
    learn(player, 2, 4);
    EXPECT_THROW(player.snapshot(), Error);
  }
  EXPECT_EQ(player.metrics().failed_snapshots, 2U);
  EXPECT_THAT(player.metrics().snapshot_problem, HasSubstr("cannot write"));
  EXPECT_THAT(files(), ElementsAre("snapshot-000000000002.tape"));
  EXPECT_THAT(events, Contains(HasSubstr("\"event\":\"snapshot_failed\"")));
  learn(player, 4, 5);  // tried again by the next step
  EXPECT_THAT(files(), Contains("snapshot-000000000005.tape"));
  EXPECT_EQ(player.metrics().snapshot_problem, "");
}

TEST_F(PlayerSnapshotsTest, OptionsThatMakeNoSense) {
  Player player = load(saved());
  EXPECT_THROW(player.keep_snapshots({}), Error);
  EXPECT_THROW(player.keep_snapshots({.folder = folder(), .keep = 0}), Error);
  EXPECT_THROW(player.keep_snapshots({.folder = path("run.tape") + "/in_a_file"}), Error);
}

TEST_F(PlayerSnapshotsTest, ASessionStartsFromOne) {
  Player player = load(saved());
  player.keep_snapshots({.folder = folder()});
  learn(player, 0, 1);
  Session session({.trace = player.snapshot()});
  SUCCEED();
}

TEST_F(PlayerSnapshotsTest, EventsTellWhatBecameOfCalls) {
  std::vector<std::string> events;
  LoadOptions options;
  options.on_event = [&](const PlayerEvent& event) {
    events.push_back(event.json());
    throw std::runtime_error("dropped");
  };
  Player player = load(saved(), options);
  const Batch batch = make_batches(1)[0];
  player.step("learn")(batch.images, batch.labels);
  EXPECT_THROW(player.step("learn")(batch.images, at::zeros({17}, at::kLong)), Error);
  ASSERT_EQ(events.size(), 2U);
  const auto ran = nlohmann::json::parse(events[0]);
  EXPECT_EQ(ran["event"], "ran");
  EXPECT_EQ(ran["step"], "learn");
  EXPECT_GT(ran["us"].get<double>(), 0);
  const auto refused = nlohmann::json::parse(events[1]);
  EXPECT_EQ(refused["event"], "refused");
  EXPECT_THAT(refused["text"].get<std::string>(), HasSubstr("inputs[1].size(0): 16 → 17"));

  const PlayerMetrics metrics = player.metrics();
  ASSERT_EQ(metrics.steps.size(), 2U);
  EXPECT_EQ(metrics.steps[0].step, "learn");
  EXPECT_EQ(metrics.steps[0].ran, 1U);
  EXPECT_EQ(metrics.steps[0].refused, 1U);
  EXPECT_EQ(metrics.steps[0].latency.count(), 1U);
  const double median = metrics.steps[0].latency.quantile_us(0.5);
  EXPECT_GT(median, 0);
  EXPECT_GE(metrics.steps[0].latency.quantile_us(1), median);
  EXPECT_EQ(metrics.steps[1].latency.quantile_us(0.5), 0);
}

}  // namespace
}  // namespace steptape::tests
