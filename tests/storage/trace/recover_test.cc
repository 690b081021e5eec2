#include <gmock/gmock.h>

#include "tests/storage/message.h"
#include "tests/storage/trace_file.h"

namespace steptape::storage {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;

class RecoverTest : public TraceFileTest {
 protected:
  RecoverTest() {
    trace_ = test::train_trace();
    trace_.steps.push_back({"eval", "", {trace_.steps[0].recordings[0]}});
    trace_.state.push_back({"large", 0, noise(3'000'000)});
    whole_ = written(trace_);
    blocks_ = blocks_of(whole_);
  }

  std::optional<trace::Trace> recovered() {
    put_file(whole_);
    return recover(path_, report_);
  }
  const Block& first_of(BlockType type) const {
    return *std::ranges::find_if(blocks_, [type](const Block& b) { return b.is(type); });
  }

  trace::Trace trace_;
  std::string whole_;
  std::vector<Block> blocks_;
  Report report_;
};

TEST_F(RecoverTest, AWholeFileIsReadWhole) {
  EXPECT_EQ(recovered(), trace_);
  EXPECT_TRUE(report_.whole());
}

TEST_F(RecoverTest, RecordingsBeforeACutAreKept) {
  whole_.resize(first_of(BlockType::kSavedState).offset + 3);
  const auto found = recovered();
  ASSERT_TRUE(found);
  EXPECT_EQ(found->steps, trace_.steps);
  EXPECT_TRUE(found->state.empty());
  EXPECT_FALSE(report_.whole());
}

TEST_F(RecoverTest, WhatLacksItsBytesIsLeftOutAndNamed) {
  whole_.resize(blocks_.back().offset - 100);
  const auto found = recovered();
  ASSERT_TRUE(found);
  EXPECT_EQ(found->state.size(), trace_.state.size() - 1);
  EXPECT_THAT(report_.problems, Contains(HasSubstr("the saved state of large is left out")));
}

TEST_F(RecoverTest, OnlyWhatLiesInADamagedPayloadIsLost) {
  const Block& damaged = first_of(BlockType::kSavedState);
  whole_[damaged.payload_offset()] ^= 1;
  const auto found = recovered();
  ASSERT_TRUE(found);
  EXPECT_EQ(found->steps, trace_.steps);
  EXPECT_EQ(found->state, std::vector(trace_.state.begin() + 1, trace_.state.end()));
  EXPECT_THAT(report_.problems, ElementsAre(HasSubstr("is damaged: its checksum is wrong"),
                                            "the saved state in block " +
                                                std::to_string(damaged.sequence) + " is left out"));
}

TEST_F(RecoverTest, WhatRefersToDamagedTensorBytesIsLost) {
  whole_[blocks_.back().offset - 100] ^= 1;
  const auto found = recovered();
  ASSERT_TRUE(found);
  EXPECT_EQ(found->steps, trace_.steps);
  EXPECT_EQ(found->state.size(), trace_.state.size() - 1);
  EXPECT_THAT(report_.problems, Contains(HasSubstr("the saved state of large is left out")));
}

/// Two steps that take turns.
class RecoverStepsTest : public RecoverTest {
 protected:
  RecoverStepsTest() {
    Forge forge;
    forge.message(BlockType::kHead, "");
    for (const char* step : {"train", "eval"}) {
      forge.message(BlockType::kStep, Message().bytes(1, step).bytes(2, "place").text());
      put_recording(forge);
    }
    for (const char* step : {"train", "eval"}) {
      forge.message(BlockType::kStepAgain, Message().bytes(1, step).text());
      put_recording(forge);
    }
    whole_ = forge.finish();
    blocks_ = blocks_of(whole_);
  }
  void put_recording(Forge& forge) {
    forge.message(BlockType::kRecording, Message().number(1, 2).number(29, ++calls_).text());
  }
  /// "train 1 3, eval 2 4": the calls that are left when the payload of this block is damaged.
  std::string left_without(std::size_t block) {
    whole_[blocks_[block].payload_offset()] ^= 1;
    std::string words;
    const std::optional<trace::Trace> found = recovered();
    for (const trace::Step& step : found.value().steps) {
      words += (words.empty() ? "" : ", ") + step.name;
      if (step.place.empty()) words += " (no place)";
      for (const trace::Recording& recording : step.recordings) {
        words += " " + std::to_string(recording.call);
      }
    }
    return words;
  }
  std::uint64_t calls_ = 0;
};

TEST_F(RecoverStepsTest, ARecordingThatIsDamagedIsLostAlone) {
  EXPECT_EQ(left_without(2), "train 3, eval 2 4");
  EXPECT_THAT(report_.problems, ElementsAre(HasSubstr("block 2 at offset"),
                                            "the recording of step train in block 2 is left out"));
}

TEST_F(RecoverStepsTest, AStepThatIsDamagedBeginsWhereItGoesOn) {
  EXPECT_EQ(left_without(3), "train 1 3, eval (no place) 4");
  EXPECT_THAT(
      report_.problems,
      ElementsAre(HasSubstr("block 3 at offset"),
                  "the recordings after block 3 are left out: it says of which step they are",
                  "step eval goes on in block 7, and began nowhere before"));
}

TEST_F(RecoverStepsTest, NoRecordingComesUnderAnotherStep) {
  EXPECT_EQ(left_without(5), "train 1, eval 2 4");
}

TEST_F(RecoverTest, NothingIsMadeOfAFileWithoutItsHeader) {
  whole_[3] ^= 1;
  EXPECT_FALSE(recovered());
  whole_ = "";
  EXPECT_FALSE(recovered());
  whole_ = encode_file_header() + "block";
  EXPECT_FALSE(recovered());
}

}  // namespace
}  // namespace steptape::storage
