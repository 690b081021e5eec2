#include <gmock/gmock.h>

#include "storage/trace/frame.h"
#include "tests/storage/message.h"
#include "tests/storage/stream.h"
#include "tests/storage/trace_file.h"

namespace steptape::storage {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;

/// Recordings that are packed against each other, and files that lie about that.
class PackedRecordingTest : public TraceFileTest {
 protected:
  static constexpr std::uint64_t kRaw = 3;
  static constexpr std::uint64_t kPacked = 8;

  /// The message of a recording of the call, with something to pack.
  static std::string recording(std::uint64_t call) {
    return Message().number(1, 2).bytes(14, std::string(400, 's')).number(29, call).text();
  }
  static std::string frame(const std::string& raw, const std::string& base) {
    return pack(bytes_of(raw), bytes_of(base), {3, kMaxRecordingExpansion});
  }
  static std::string packed(std::uint64_t base, std::uint64_t bytes, const std::string& frame) {
    return Message().number(1, base).number(2, bytes).bytes(3, frame).text();
  }
  /// Blocks from 2 on, after those of the head and of a step.
  void put_blocks(const std::vector<std::pair<BlockType, std::string>>& blocks) {
    Forge forge;
    forge.message(BlockType::kHead, "")
        .message(BlockType::kStep, Message().bytes(1, "train").text());
    for (const auto& [type, payload] : blocks) forge.message(type, payload);
    put_file(forge.finish());
  }
  /// A whole recording in block 2, and a packed one of this base in block 3.
  void put_base(std::uint64_t base) {
    put_blocks({{BlockType::kRecording, recording(1)},
                {BlockType::kPackedRecording,
                 packed(base, recording(2).size(), frame(recording(2), recording(1)))}});
  }
  void expect_data_loss(const std::string& words) const {
    const Error error = refusal();
    EXPECT_EQ(error.code(), ErrorCode::kDataLoss);
    EXPECT_THAT(error.what(), HasSubstr(words));
  }
  std::vector<std::uint64_t> calls_left(std::vector<std::string>& problems) const {
    Report report;
    std::vector<std::uint64_t> calls;
    const std::optional<trace::Trace> found = recover(path_, report);
    for (const trace::Recording& one : found.value().steps.at(0).recordings) {
      calls.push_back(one.call);
    }
    problems = report.problems;
    return calls;
  }
};

TEST_F(PackedRecordingTest, WhatTheForgeMakesIsATraceOtherwise) {
  put_base(2);
  const auto recordings = read(path_).steps[0].recordings;
  ASSERT_EQ(recordings.size(), 2u);
  EXPECT_EQ(recordings[0].call, 1u);
  EXPECT_EQ(recordings[1].call, 2u);
  EXPECT_EQ(recordings[1].scopes, recordings[0].scopes);
}

TEST_F(PackedRecordingTest, ABaseThatIsNotTheOneBeforeIsWrong) {
  for (const std::uint64_t base : {1ul, 3ul, 4ul, 999ul, UINT64_MAX}) {
    put_base(base);
    expect_data_loss("the recording in block 3 is packed against that in block " +
                     std::to_string(base) + ", and the one before it is in block 2");
  }
}

TEST_F(PackedRecordingTest, ABaseWhereThereIsNoneIsWrong) {
  put_blocks({{BlockType::kPackedRecording, packed(2, 10, "frame")}});
  expect_data_loss(
      "the recording in block 2 is packed against that in block 2, and there is none before it");
}

TEST_F(PackedRecordingTest, AnEarlierRecordingThanTheOneBeforeIsNoBase) {
  put_blocks({{BlockType::kRecording, recording(1)},
              {BlockType::kRecording, recording(2)},
              {BlockType::kPackedRecording,
               packed(2, recording(3).size(), frame(recording(3), recording(1)))}});
  expect_data_loss("packed against that in block 2, and the one before it is in block 3");
}

TEST_F(PackedRecordingTest, ARecordingOfAnotherStepIsNoBase) {
  put_blocks({{BlockType::kRecording, recording(1)},
              {BlockType::kStep, Message().bytes(1, "eval").text()},
              {BlockType::kPackedRecording,
               packed(2, recording(2).size(), frame(recording(2), recording(1)))}});
  expect_data_loss("packed against that in block 2, and there is none before it");
}

TEST_F(PackedRecordingTest, ARecordingThatMissesItsBaseIsRefused) {
  put_base(0);
  expect_data_loss("zstd cannot unpack");
}

TEST_F(PackedRecordingTest, SizesThatLieAreWrong) {
  const std::string one = recording(1);
  const std::string whole = frame(one, "");
  for (const std::uint64_t bytes : {one.size() - 1, std::size_t{0}}) {
    put_blocks({{BlockType::kPackedRecording, packed(0, bytes, whole)}});
    expect_data_loss("zstd cannot unpack: Destination buffer is too small");
  }
  put_blocks({{BlockType::kPackedRecording, packed(0, one.size() + 1, whole)}});
  expect_data_loss(std::to_string(one.size()) + " bytes came out of zstd where " +
                   std::to_string(one.size() + 1) + " were announced");
  for (const std::uint64_t bytes : {std::uint64_t{1} << 31, UINT64_MAX, std::uint64_t{16 * 6}}) {
    put_blocks({{BlockType::kPackedRecording, packed(0, bytes, "stray")}});
    expect_data_loss("the recording in block 2 has 5 stored bytes that claim to be " +
                     std::to_string(bytes) + ", more than the format allows");
  }
}

TEST_F(PackedRecordingTest, WhatIsNoRecordingIsRefused) {
  const std::string rubbish(50, '\xff');
  put_blocks({{BlockType::kPackedRecording, packed(0, 50, frame(rubbish, ""))}});
  expect_data_loss("the message in block 2 cannot be read");
  put_blocks({{BlockType::kPackedRecording, packed(0, 50, rubbish)}});
  expect_data_loss("zstd cannot unpack");
  put_blocks({{BlockType::kPackedRecording, rubbish}});
  expect_data_loss("the message in block 2 cannot be read");
}

/// Writes `count` recordings of one step.
class PackedChainTest : public PackedRecordingTest {
 protected:
  PackedChainTest() {
    trace::Step step{"train", "", {}};
    for (std::uint64_t call = 1; call <= kCount; ++call) {
      step.recordings.push_back(addition(1).recording);
      step.recordings.back().call = call;
    }
    trace_.steps = {step};
    bytes_ = written(trace_);
    for (const Block& block : blocks_of(bytes_)) {
      if (block.type == kRaw || block.type == kPacked) recordings_.push_back(block);
    }
  }

  static constexpr std::uint64_t kCount = 40;
  trace::Trace trace_;
  std::string bytes_;
  std::vector<Block> recordings_;
};

TEST_F(PackedChainTest, ComesBack) { EXPECT_EQ(read(path_), trace_); }

TEST_F(PackedChainTest, EachSixteenthIsPackedAloneAndTheOthersAreSmall) {
  ASSERT_EQ(recordings_.size(), kCount);
  for (std::size_t i = 0; i < kCount; ++i) {
    ASSERT_EQ(recordings_[i].type, kPacked) << i;
    if (i % 16 == 0) {
      ASSERT_GT(recordings_[i].length, recordings_[0].length * 9 / 10) << i;
    } else {
      ASSERT_LT(recordings_[i].length, recordings_[0].length / 4) << i;
    }
  }
}

TEST_F(PackedChainTest, OfARecordingThatIsDamagedThoseArePartThatDependOnIt) {
  for (const std::size_t damaged : {0, 3, 15, 16, 38}) {
    std::string bytes = bytes_;
    const std::uint64_t number = recordings_[damaged].sequence;
    bytes[recordings_[damaged].end() - 1] ^= 1;
    put_file(bytes);
    std::vector<std::uint64_t> expected;
    const std::size_t whole_from = std::min<std::size_t>(kCount, (damaged / 16 + 1) * 16);
    for (std::size_t i = 0; i < kCount; ++i) {
      if (i < damaged || i >= whole_from) expected.push_back(i + 1);
    }
    std::vector<std::string> problems;
    EXPECT_EQ(calls_left(problems), expected) << damaged;
    EXPECT_EQ(problems.size(), 1 + whole_from - damaged) << damaged;
    EXPECT_THAT(problems, Contains("the recording of step train in block " +
                                   std::to_string(number) + " is left out"));
    if (whole_from - damaged < 2) continue;
    EXPECT_THAT(problems,
                Contains(HasSubstr("is packed against that in block " + std::to_string(number))));
  }
}

TEST_F(PackedChainTest, WithoutCompressionEachIsAsItIs) {
  written(trace_, {Compression::kNone});
  const std::string bytes = bytes_of_file(path_);
  for (const Block& block : blocks_of(bytes)) EXPECT_NE(block.type, kPacked);
  EXPECT_EQ(read(path_), trace_);
}

class FrameTest : public testing::TestWithParam<std::size_t> {
 protected:
  static std::vector<std::byte> unpacked(const std::string& frame, ByteView base,
                                         std::size_t bytes) {
    std::vector<std::byte> raw(bytes);
    unpack(bytes_of(frame), base, raw);
    return raw;
  }
};

TEST_P(FrameTest, NoiseTakesLittleRoomBehindItselfWhateverItsSize) {
  const trace::Blob blob = noise(GetParam());
  std::vector<std::byte> changed = *blob;
  changed[changed.size() / 2] ^= std::byte{1};
  const std::string frame = pack(changed, *blob, {3, 1000});
  ASSERT_FALSE(frame.empty());
  EXPECT_LT(frame.size(), changed.size() / 20 + 40);
  EXPECT_EQ(unpacked(frame, *blob, changed.size()), changed);
}

TEST_P(FrameTest, NothingGrowsMoreThanItMay) {
  const std::vector<std::byte> zeros(GetParam());
  for (const std::uint64_t most : {4, 16, 256}) {
    const std::string frame = pack(zeros, zeros, {3, most});
    EXPECT_LE(zeros.size() / most, frame.size());
    EXPECT_EQ(unpacked(frame, zeros, zeros.size()), zeros);
  }
}

TEST_P(FrameTest, NoiseAloneIsNotPacked) { EXPECT_EQ(pack(*noise(GetParam()), {}, {3, 16}), ""); }

INSTANTIATE_TEST_SUITE_P(Sizes, FrameTest, testing::Values(500, 70'000, 3'000'000));

}  // namespace
}  // namespace steptape::storage
