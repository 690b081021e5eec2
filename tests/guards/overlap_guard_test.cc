#include "guards/overlap_guard.h"

#include <gtest/gtest.h>

#include <array>

namespace steptape::guards {
namespace {

/// Inputs over memory that the step writes and that stays where it is, however often it is checked.
TEST(OverlapGuardTest, LastingMemoryIsFoundWhereverItLies) {
  constexpr std::size_t kParameters = 20;
  trace::Recording recording;
  std::vector<trace::BufferId> bound, written;
  for (std::size_t k = 0; k <= kParameters; ++k) {
    trace::Buffer buffer;
    buffer.bytes = 64;
    buffer.role = k == 0 ? trace::Role::kInput : trace::Role::kParameter;
    buffer.path = k == 0 ? "inputs[0]" : "model.p" + std::to_string(k);
    recording.buffers.push_back(buffer);
    bound.push_back(static_cast<trace::BufferId>(k));
    if (k != 0) written.push_back(bound.back());
  }
  const OverlapGuard overlap(recording, bound, written);
  std::vector<char> bytes((kParameters + 2) * 128);
  std::vector<void*> memory(kParameters + 1);
  std::uint64_t moves = 0;
  const auto lay_out = [&](std::size_t shift) {
    for (std::size_t k = 1; k <= kParameters; ++k) {
      memory[k] = bytes.data() + ((k * 7 + shift) % kParameters) * 128;
    }
    ++moves;
  };
  const auto check_all = [&] {
    for (std::size_t at = 0; at + 64 <= bytes.size(); at += 16) {
      memory[0] = bytes.data() + at;
      const bool is_apart = at + 64 > kParameters * 128 || at % 128 == 64;
      EXPECT_EQ(static_cast<bool>(overlap.check(memory, moves)), is_apart) << at;
    }
  };
  for (const std::size_t shift : {0, 3, 11}) {
    lay_out(shift);
    check_all();
  }
  memory[0] = memory[5];
  const Verdict verdict = overlap.check(memory, moves);
  EXPECT_EQ(verdict.text(),
            "inputs[0]: memory of its own → memory of model.p5, which the step writes");
  EXPECT_EQ(verdict.kind, GuardKind::kOverlap);
}

TEST(OverlapGuardTest, AnInputThatIsWrittenLiesApartFromWhatTheStepReads) {
  trace::Recording recording;
  for (const char* path : {"inputs[0]", "inputs[1]", "outside[0]", "nothing", "model.weight"}) {
    trace::Buffer buffer;
    buffer.bytes = path == std::string("nothing") ? 0 : 64;
    buffer.role = path[0] == 'i'   ? trace::Role::kInput
                  : path[0] == 'm' ? trace::Role::kParameter
                                   : trace::Role::kConstant;
    buffer.path = path;
    recording.buffers.push_back(buffer);
  }
  const OverlapGuard overlap(recording, {0, 1, 2, 3, 4}, {0});
  std::vector<char> bytes(512);
  const auto found = [&](std::size_t written, std::size_t read, std::uint64_t moves) {
    const std::vector<void*> memory = {bytes.data() + written, bytes.data() + read,
                                       bytes.data() + 128, bytes.data() + 32, bytes.data() + 256};
    const Verdict verdict = overlap.check(memory, moves);
    return verdict ? "" : verdict.text();
  };
  for (const std::uint64_t moves : {1, 1, 1, 2}) {  // sorted from the third on
    EXPECT_EQ(found(0, 64, moves), "") << "what is empty lies nowhere";
    EXPECT_EQ(found(0, 130, moves), "") << "both are read alone";
    EXPECT_EQ(found(190, 64, moves),
              "outside[0]: memory of its own → memory of inputs[0], which the step writes");
    EXPECT_EQ(found(319, 64, moves),
              "model.weight: memory of its own → memory of inputs[0], which the step writes");
    EXPECT_EQ(found(400, 400, moves),
              "inputs[1]: memory of its own → memory of inputs[0], which the step writes");
  }
}

TEST(OverlapGuardTest, WhatIsNoInputLiesApartFromWhatIsWritten) {
  trace::Recording recording;
  for (const char* path : {"frozen", "also frozen", "trained", "also trained"}) {
    trace::Buffer buffer;
    buffer.bytes = 64;
    buffer.role = trace::Role::kParameter;
    buffer.path = path;
    recording.buffers.push_back(buffer);
  }
  const OverlapGuard overlap(recording, {0, 1, 2, 3}, {2, 3});
  std::vector<char> bytes(512);
  std::uint64_t moves = 0;
  const auto found = [&](std::array<std::size_t, 4> at) {
    std::vector<void*> memory;
    for (const std::size_t begin : at) memory.push_back(bytes.data() + begin);
    const Verdict verdict = overlap.check_apart(memory, ++moves);
    return verdict ? "" : verdict.text();
  };
  EXPECT_EQ(found({0, 64, 128, 192}), "");
  EXPECT_EQ(found({192, 0, 64, 128}), "");
  EXPECT_EQ(found({0, 0, 128, 192}), "") << "both are read alone";
  EXPECT_EQ(found({0, 32, 192, 128}), "");
  EXPECT_EQ(found({0, 64, 127, 192}),
            "also frozen: memory of its own → memory of trained, which the step writes");
  EXPECT_EQ(found({400, 200, 0, 148}),
            "also frozen: memory of its own → memory of also trained, which the step writes");
  for (const std::size_t second : {290, 300, 310}) {
    EXPECT_EQ(found({0, 64, 300, second}),
              "also trained: memory of its own → memory of trained, which the step writes");
  }
}

}  // namespace
}  // namespace steptape::guards
