#include "replayer/runtime/cuda/plan/ring.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <new>
#include <random>
#include <set>
#include <stdexcept>

#include "steptape/error.h"

namespace steptape::tests {
namespace {

using replayer::cuda::Fence;
using replayer::cuda::Ring;
using replayer::cuda::RingMemory;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

/// A stream whose work is done when the test says so, in order.
struct Stream {
  std::uint64_t asked = 0;  ///< points recorded
  std::uint64_t done = 0;   ///< of these
  std::vector<std::uint64_t> waited_for;
  bool fails = false;
};

class StreamFence : public Fence {
 public:
  explicit StreamFence(Stream& stream) : stream_(stream) {}
  void record() override { point_ = ++stream_.asked; }
  bool is_done() override { return stream_.done >= point_; }
  void wait() override {
    if (stream_.fails) throw std::runtime_error("the device failed");
    stream_.waited_for.push_back(point_);
    stream_.done = std::max(stream_.done, point_);
  }

 private:
  Stream& stream_;
  std::uint64_t point_ = 0;
};

class CountedMemory : public RingMemory {
 public:
  std::byte* allocate(std::size_t bytes) override {
    if (is_short) throw std::bad_alloc();
    auto block = std::make_unique<std::byte[]>(bytes);
    std::byte* memory = block.get();
    sizes[memory] = bytes;
    blocks_[memory] = std::move(block);
    return memory;
  }
  void free(std::byte* memory) noexcept override {
    EXPECT_EQ(blocks_.count(memory), 1U);
    sizes.erase(memory);
    blocks_.erase(memory);
  }
  std::unique_ptr<Fence> make_fence() override { return std::make_unique<StreamFence>(stream); }

  Stream stream;
  bool is_short = false;
  std::map<std::byte*, std::size_t> sizes;

 private:
  std::map<std::byte*, std::unique_ptr<std::byte[]>> blocks_;
};

class RingTest : public ::testing::Test {
 protected:
  /// One transfer that the stream does not get to yet.
  std::byte* transfer(std::size_t bytes = 64) {
    std::byte* memory = ring.take(bytes);
    ring.done();
    return memory;
  }
  void finish(std::uint64_t transfers) { memory.stream.done += transfers; }
  const std::vector<std::uint64_t>& waited_for() const { return memory.stream.waited_for; }

  CountedMemory memory;
  Ring ring{memory, 3};
};

TEST_F(RingTest, AllocatesNothingUntilItIsAsked) { EXPECT_THAT(memory.sizes, IsEmpty()); }

TEST_F(RingTest, HandsOutItsSlotsInTurn) {
  std::byte *a = transfer(), *b = transfer(), *c = transfer();
  EXPECT_THAT(memory.sizes, SizeIs(3));
  finish(3);
  EXPECT_EQ(transfer(), a);
  EXPECT_EQ(transfer(), b);
  EXPECT_EQ(transfer(), c);
  EXPECT_THAT(waited_for(), IsEmpty());
}

TEST_F(RingTest, WaitsForTheOldestTransferWhenAllAreUnderWay) {
  std::byte* oldest = transfer();
  transfer();
  transfer();
  EXPECT_EQ(transfer(), oldest);
  EXPECT_THAT(waited_for(), ElementsAre(1));
  transfer();
  EXPECT_THAT(waited_for(), ElementsAre(1, 2));
}

TEST_F(RingTest, WaitsOnlyForWhatIsLate) {
  for (int i = 0; i < 3; ++i) transfer();
  finish(2);
  for (int i = 0; i < 2; ++i) transfer();
  EXPECT_THAT(waited_for(), IsEmpty());
  transfer();
  EXPECT_THAT(waited_for(), ElementsAre(3));
}

TEST_F(RingTest, ASlotThatIsUsedAgainHasANewFence) {
  for (int i = 0; i < 3; ++i) transfer();
  finish(3);
  for (int i = 0; i < 3; ++i) transfer();
  transfer();
  EXPECT_THAT(waited_for(), ElementsAre(4));
}

TEST_F(RingTest, OneSlotIsARingToo) {
  Ring single(memory, 1);
  single.take(64);
  single.done();
  single.take(64);
  EXPECT_THAT(waited_for(), ElementsAre(1));
}

TEST_F(RingTest, ASlotGrowsToWhatIsAskedFor) {
  transfer(100);
  EXPECT_GE(memory.sizes.begin()->second, 100U);
  transfer(100);
  transfer(100);
  finish(3);
  std::byte* larger = transfer(1000);
  EXPECT_GE(memory.sizes.at(larger), 1000U);
  EXPECT_THAT(memory.sizes, SizeIs(3)) << "the smaller one is freed";
}

TEST_F(RingTest, ASlotGrowsWhenItsTransferIsDone) {
  for (int i = 0; i < 3; ++i) transfer(100);
  transfer(1000);
  EXPECT_THAT(waited_for(), ElementsAre(1));
}

TEST_F(RingTest, ASlotKeepsItsSizeForSmallerTransfers) {
  Ring single(memory, 1);
  std::byte* large = single.take(1000);
  single.done();
  EXPECT_EQ(single.take(10), large);
  single.done();
  EXPECT_EQ(single.take(1000), large);
}

TEST_F(RingTest, SizesThatCreepUpSeldomAllocate) {
  Ring single(memory, 1);
  std::set<std::byte*> seen;
  for (std::size_t bytes = 513; bytes <= 1024; ++bytes) {
    seen.insert(single.take(bytes));
    single.done();
  }
  EXPECT_THAT(seen, SizeIs(1));
}

TEST_F(RingTest, NothingMayBeTaken) {
  EXPECT_NO_THROW(transfer(0));
  EXPECT_THAT(memory.sizes, IsEmpty());
  EXPECT_EQ(memory.stream.asked, 1U);
}

TEST_F(RingTest, ATakeThatWasNeverDoneIsFenced) {
  std::byte* abandoned = ring.take(64);
  EXPECT_NE(ring.take(64), abandoned) << "what was asked of the stream may still read it";
  EXPECT_EQ(memory.stream.asked, 1U);
}

TEST_F(RingTest, DoneWithoutATakeDoesNothing) {
  ring.done();
  EXPECT_EQ(memory.stream.asked, 0U);
  transfer();
  ring.done();
  EXPECT_EQ(memory.stream.asked, 1U);
}

TEST_F(RingTest, AWantOfMemoryLeavesTheRingAsItWas) {
  std::byte* first = transfer();
  finish(1);
  memory.is_short = true;
  EXPECT_THROW(ring.take(64), std::bad_alloc);
  memory.is_short = false;
  transfer();
  transfer();
  finish(2);
  memory.is_short = true;
  EXPECT_THROW(ring.take(1000), std::bad_alloc);
  EXPECT_EQ(transfer(64), first) << "it still has the memory that it could not replace";
  EXPECT_EQ(memory.stream.asked, 4U);
}

TEST(RingEndTest, WaitsForWhatIsUnderWayAndFreesAll) {
  CountedMemory memory;
  {
    Ring ring(memory, 3);
    for (int i = 0; i < 2; ++i) {
      ring.take(64);
      ring.done();
    }
    ring.take(64);
  }
  EXPECT_THAT(memory.sizes, IsEmpty());
  EXPECT_THAT(memory.stream.waited_for, ElementsAre(1, 2, 3));
}

TEST(RingEndTest, LosesMemoryRatherThanFreesItUnderAFailedDevice) {
  CountedMemory memory;
  {
    Ring ring(memory, 2);
    ring.take(64);
    ring.done();
    memory.stream.fails = true;
  }
  EXPECT_THAT(memory.sizes, SizeIs(1));
}

TEST(RingEndTest, ARingNeedsASlot) {
  CountedMemory memory;
  EXPECT_THROW(Ring(memory, 0), Error);
}

TEST(RingPropertyTest, NoTransferIsOverwrittenBeforeItIsDone) {
  CountedMemory memory;
  std::mt19937_64 random(9);
  struct Transfer {
    std::uint64_t point;
    std::vector<std::byte> sent;
    const std::byte* memory;
  };
  std::deque<Transfer> under_way;
  Ring ring(memory, 4);
  // A transfer reads its slot at the moment it is done: until then its bytes must be there.
  const auto look = [&](std::uint64_t done) {
    for (const Transfer& transfer : under_way) {
      if (transfer.point <= done) continue;
      EXPECT_EQ(std::memcmp(transfer.memory, transfer.sent.data(), transfer.sent.size()), 0);
    }
    while (!under_way.empty() && under_way.front().point <= done) under_way.pop_front();
  };
  for (int i = 0; i < 5000; ++i) {
    const std::vector<std::byte> sent(1 + random() % 300, static_cast<std::byte>(random()));
    std::byte* slot = ring.take(sent.size());
    std::memcpy(slot, sent.data(), sent.size());
    ring.done();
    look(memory.stream.done);
    under_way.push_back({memory.stream.asked, sent, slot});
    if (random() % 3 != 0) {
      memory.stream.done += random() % (memory.stream.asked - memory.stream.done + 1);
    }
  }
  EXPECT_FALSE(memory.stream.waited_for.empty());
}

}  // namespace
}  // namespace steptape::tests
