#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "session/variants.h"

namespace steptape::session {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class RoomTest : public ::testing::Test {
 protected:
  void hold(std::size_t count, std::uint64_t bytes = 0, bool is_returned = true) {
    for (std::size_t i = 0; i < count; ++i) held_.push_back({now_++, bytes, is_returned});
  }
  void replay(int times) {
    for (int i = 0; i < times; ++i) room_.note_replay();
  }
  Room::Answer ask() { return room_.ask(held_, now_); }

  Room room_{64};
  std::vector<Room::Held> held_;
  std::uint64_t now_ = 0;
};

TEST_F(RoomTest, IsFreeUpToTheLimit) {
  hold(63);
  EXPECT_TRUE(ask().is_free);
  EXPECT_THAT(ask().leaving, IsEmpty());
  hold(1);
  EXPECT_FALSE(ask().is_free);
}

TEST_F(RoomTest, ReplaysPayForTheOneUsedLongestAgo) {
  hold(64);
  held_[0].last_use = held_[5].last_use = now_;
  replay(16);
  EXPECT_THAT(ask().leaving, ElementsAre(1));
  EXPECT_FALSE(ask().is_free);
}

TEST_F(RoomTest, ReplaysOfLongAgoPayForSoManyAlone) {
  hold(64);
  replay(1'000'000);
  int free = 0;
  while (ask().is_free) ++free;
  EXPECT_EQ(free, 64);
}

TEST_F(RoomTest, AFewThatWereUnusedForLongLeaveUnpaid) {
  hold(64);
  now_ += 100;
  for (int pause = 0; pause < 2; ++pause) {
    for (int i = 0; i < 8; ++i) EXPECT_TRUE(ask().is_free);
    EXPECT_FALSE(ask().is_free);
  }
}

TEST_F(RoomTest, BeyondTheFirstMemoryIsBounded) {
  hold(8, Room::kMostBytes);
  replay(100);
  EXPECT_THAT(ask().leaving, ElementsAre(0));
  held_.erase(held_.begin());
  EXPECT_THAT(ask().leaving, IsEmpty());
}

TEST_F(RoomTest, AsManyLeaveAsHoldTooMuch) {
  hold(2, Room::kMostBytes / 3);
  hold(14, Room::kMostBytes / 15);
  replay(16);
  const Room::Answer answer = ask();
  EXPECT_TRUE(answer.is_free);
  EXPECT_THAT(answer.leaving, ElementsAre(0, 1));
}

TEST_F(RoomTest, ThoseThatNoCallCameBackToAreBounded) {
  hold(3);
  hold(Room::kMostUnreturned, 0, false);
  EXPECT_FALSE(ask().is_free);
  replay(16);
  EXPECT_THAT(ask().leaving, ElementsAre(3));
}

TEST_F(RoomTest, NoneIsKeptWhereNoneIsWanted) {
  room_ = Room(0);
  replay(100);
  EXPECT_FALSE(ask().is_free);
}

}  // namespace
}  // namespace steptape::session
