#include <gmock/gmock.h>

#include <atomic>
#include <mutex>
#include <thread>

#include "steptape/player.h"
#include "tests/session/taught.h"

namespace steptape::tests {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

using PlayerClonesTest = TaughtTest;

TEST_F(PlayerClonesTest, ReadsWhatWasPublishedLast) {
  Player player = load(saved());
  const at::Tensor images = make_batches(1, 16, 5)[0].images;
  const at::Tensor first = player.step("predict")(images);
  Player clone = player.clone();
  PlayerStep predict = clone.step("predict");
  EXPECT_TRUE(same_bits(predict(images), first));

  for (const Batch& batch : make_batches(3, 16, 6))
    player.step("learn")(batch.images, batch.labels);
  const at::Tensor second = player.step("predict")(images);
  EXPECT_FALSE(same_bits(first, second));
  EXPECT_TRUE(same_bits(predict(images), first));
  player.publish();
  EXPECT_TRUE(same_bits(predict(images), second));
  EXPECT_TRUE(same_bits(clone.tensor("model.fc1.weight"), player.tensor("model.fc1.weight")));
}

TEST_F(PlayerClonesTest, HasWhatItNeedsAndWritesNothing) {
  Player player = load(saved());
  Player clone = player.clone();
  EXPECT_THAT(clone.steps(), ElementsAre("predict"));
  EXPECT_TRUE(player.step("learn").writes_state());
  EXPECT_FALSE(player.step("predict").writes_state());
  const auto expect_refused = [](auto call, const std::string& says) {
    try {
      call();
      ADD_FAILURE() << says;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kFailedPrecondition) << error.what();
      EXPECT_THAT(error.what(), HasSubstr(says));
    }
  };
  expect_refused([&] { clone.step("learn"); }, "learn");
  expect_refused([&] { clone.save(path("other.tape")); }, "clone");
  expect_refused([&] { clone.save_weights(path("other.pt")); }, "clone");
  expect_refused([&] { clone.load_weights(path("other.pt")); }, "clone");
  expect_refused([&] { clone.publish(); }, "clone");
  EXPECT_THROW(clone.step("fly"), Error);
  // a copy: what a reader does with it must not reach others
  clone.tensor("model.fc1.weight").zero_();
  EXPECT_FALSE(same_bits(clone.tensor("model.fc1.weight"), at::zeros({32, 64})));
}

TEST_F(PlayerClonesTest, OfAClone) {
  Player player = load(saved());
  Player clone = player.clone();
  Player again = clone.clone();
  const at::Tensor images = make_batches(1, 4, 5)[0].images;
  EXPECT_TRUE(same_bits(again.step("predict")(images), player.step("predict")(images)));
}

TEST_F(PlayerClonesTest, OutliveTheirPlayer) {
  const at::Tensor images = make_batches(1, 4, 5)[0].images;
  at::Tensor expected;
  std::unique_ptr<Player> clone;
  {
    Player player = load(saved());
    expected = player.step("predict")(images);
    clone = std::make_unique<Player>(player.clone());
  }
  EXPECT_TRUE(same_bits(clone->step("predict")(images), expected));
}

TEST_F(PlayerClonesTest, AVersionIsWrittenAgainOnceNobodyReadsIt) {
  Player player = load(saved());
  Player idle = player.clone();
  Player busy = player.clone();
  const std::uint64_t one = player.memory().published;
  EXPECT_GT(one, 0U);
  const at::Tensor images = make_batches(1, 4, 5)[0].images;
  for (const Batch& batch : make_batches(8, 16, 6)) {
    player.step("learn")(batch.images, batch.labels);
    player.publish();
    busy.step("predict")(images);
  }
  // the one that is idle keeps the first, and two change places
  EXPECT_EQ(player.memory().published, 3 * one);
  EXPECT_EQ(player.metrics().published, 8U);
}

/// Each prediction must be that of one whole step, however readers and writer meet.
TEST_F(PlayerClonesTest, ReadersSeeWholeSteps) {
  constexpr int kReaders = 4;
  constexpr std::size_t kLessons = 300;
  Player player = load(saved());
  const at::Tensor images = make_batches(1, 16, 5)[0].images;
  std::vector<at::Tensor> possible = {player.step("predict")(images)};
  {
    Player rehearsal = load(saved());
    for (const Batch& batch : make_batches(kLessons, 16, 6)) {
      rehearsal.step("learn")(batch.images, batch.labels);
      possible.push_back(rehearsal.step("predict")(images));
    }
  }
  std::vector<Player> clones;
  for (int i = 0; i < kReaders; ++i) clones.push_back(player.clone());
  std::atomic<bool> ended = false;
  std::atomic<std::size_t> predicted = 0, seen = 0, torn = 0;
  std::vector<std::thread> readers;
  for (Player& clone : clones) {
    readers.emplace_back([&] {
      PlayerStep predict = clone.step("predict");
      std::size_t newest = 0;
      for (bool last = false; !last;) {
        last = ended;
        const at::Tensor scores = predict(images);
        ++predicted;
        // versions only grow
        std::size_t version = newest;
        while (version < possible.size() && !same_bits(scores, possible[version])) ++version;
        if (version == possible.size()) {
          ++torn;
        } else if (version != newest) {
          ++seen;
          newest = version;
        }
      }
      if (newest + 1 != possible.size()) ++torn;
    });
  }
  for (const Batch& batch : make_batches(kLessons, 16, 6)) {
    player.step("learn")(batch.images, batch.labels);
    player.publish();
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  ended = true;
  for (std::thread& reader : readers) reader.join();
  EXPECT_EQ(torn, 0U);
  EXPECT_GT(seen, 0U);
  std::printf("%zu predictions beside %zu lessons, %zu new versions seen\n", predicted.load(),
              kLessons, seen.load());
  EXPECT_EQ(player.metrics().steps.at(1).ran, predicted + 1);
}

TEST_F(PlayerClonesTest, GeneratorsAreTheirOwn) {
  Session session(quiet());
  auto draw = session.wrap("draw", [](at::Tensor x) { return at::dropout(x, 0.5, true); });
  const at::Tensor x = at::ones({64});
  torch::manual_seed(9);
  for (int i = 0; i < 4; ++i) draw(x);
  session.save(path("draw.tape"), Session::State::kWith);
  Player player = load(path("draw.tape"));
  Player clone = player.clone();
  Player other = player.clone();
  other.seed(17);
  const at::Tensor mask = player.step("draw")(x);
  EXPECT_TRUE(same_bits(clone.step("draw")(x), mask));
  EXPECT_FALSE(same_bits(other.step("draw")(x), mask));
  // threads that draw wait for each other: the process has one default generator
  std::vector<at::Tensor> drawn(2);
  std::thread one([&] {
    for (int i = 0; i < 200; ++i) drawn[0] = clone.step("draw")(x);
  });
  std::thread two([&] {
    for (int i = 0; i < 200; ++i) drawn[1] = player.step("draw")(x);
  });
  one.join();
  two.join();
  EXPECT_TRUE(same_bits(drawn[0], drawn[1]));
}

TEST_F(PlayerClonesTest, ReloadsWeightsBesideReaders) {
  Player player = load(saved());
  const at::Tensor images = make_batches(1, 4, 5)[0].images;
  player.save_weights(path("old.pt"));
  const at::Tensor old = player.step("predict")(images);
  for (const Batch& batch : make_batches(2, 16, 6))
    player.step("learn")(batch.images, batch.labels);
  const at::Tensor fresh = player.step("predict")(images);
  Player clone = player.clone();
  std::atomic<bool> ended = false;
  std::atomic<int> wrong = 0;
  std::thread reader([&] {
    while (!ended) {
      const at::Tensor scores = clone.step("predict")(images);
      if (!same_bits(scores, old) && !same_bits(scores, fresh)) ++wrong;
    }
  });
  player.load_weights(path("old.pt"));
  player.publish();
  ended = true;
  reader.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_TRUE(same_bits(clone.step("predict")(images), old));
}

}  // namespace
}  // namespace steptape::tests
