#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <random>

#include "replayer/planner/passes/passes.h"
#include "steptape/error.h"

namespace steptape::tests {
namespace {

using replayer::BufferPlan;
using replayer::Placement;
using replayer::Program;

/// A program of arena buffers alone, with lifetimes and sizes as given.
struct Block {
  std::int64_t defined, last_use;
  std::uint64_t bytes;
};

Program program_of(const std::vector<Block>& blocks) {
  auto recording = std::make_shared<trace::Recording>();
  Program program;
  std::int64_t ops = 0;
  for (const Block& block : blocks) {
    trace::Buffer buffer;
    buffer.bytes = block.bytes;
    recording->buffers.push_back(buffer);
    program.buffers.push_back({Placement::kArena, 0, block.defined, block.last_use});
    ops = std::max(ops, block.last_use + 1);
  }
  const auto any = c10::Dispatcher::singleton().findSchemaOrThrow("aten::relu", "");
  program.instructions.assign(static_cast<std::size_t>(ops), {replayer::Treatment::kCall, any});
  program.recording = std::move(recording);
  return program;
}

bool overlap(const Program& program, std::size_t a, std::size_t b) {
  const BufferPlan &x = program.buffers[a], &y = program.buffers[b];
  const bool in_time = x.defined <= y.last_use && y.defined <= x.last_use;
  const bool in_space = x.arena_offset < y.arena_offset + program.recording->buffers[b].bytes &&
                        y.arena_offset < x.arena_offset + program.recording->buffers[a].bytes;
  return in_time && in_space;
}

TEST(MemoryPlanTest, BuffersThatFollowEachOtherShareMemory) {
  Program program = program_of({{0, 1, 640}, {2, 3, 640}, {4, 5, 640}});
  plan_memory(program, replayer::Sharing::kByLifetime);
  EXPECT_EQ(program.arena_bytes, 640U);
  EXPECT_EQ(program.temporary_bytes, 1920U);
  EXPECT_EQ(program.max_live_bytes, 640U);
}

TEST(MemoryPlanTest, AnOpsInputsAndResultsDoNotShareMemory) {
  Program program = program_of({{0, 1, 64}, {1, 2, 64}});
  plan_memory(program, replayer::Sharing::kByLifetime);
  EXPECT_EQ(program.arena_bytes, 128U);
}

TEST(MemoryPlanTest, WithoutSharingEachBufferHasItsOwn) {
  Program program = program_of({{0, 1, 100}, {2, 3, 100}});
  plan_memory(program, replayer::Sharing::kNone);
  EXPECT_EQ(program.arena_bytes, 256U);
}

TEST(MemoryPlanTest, BuffersThatCannotBeAddressedTogetherAreRefused) {
  Program program = program_of({{0, 1, INT64_MAX}, {0, 1, INT64_MAX}, {0, 1, 128}});
  try {
    plan_memory(program, replayer::Sharing::kByLifetime);
    FAIL() << "they were planned";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
  }
}

TEST(MemoryPlanTest, RandomLifetimesNeverOverlapAndStayAligned) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 50; ++round) {
    std::vector<Block> blocks;
    for (int i = 0; i < 60; ++i) {
      const auto defined = static_cast<std::int64_t>(random() % 80);
      blocks.push_back(
          {defined, defined + static_cast<std::int64_t>(random() % 20), random() % 5000});
    }
    Program program = program_of(blocks);
    plan_memory(program, replayer::Sharing::kByLifetime);
    EXPECT_GE(program.arena_bytes, program.max_live_bytes);
    for (std::size_t a = 0; a < blocks.size(); ++a) {
      EXPECT_EQ(program.buffers[a].arena_offset % 64, 0U);
      EXPECT_LE(program.buffers[a].arena_offset + blocks[a].bytes, program.arena_bytes);
      for (std::size_t b = a + 1; b < blocks.size(); ++b)
        ASSERT_FALSE(overlap(program, a, b)) << a << " " << b;
    }
  }
}

}  // namespace
}  // namespace steptape::tests
