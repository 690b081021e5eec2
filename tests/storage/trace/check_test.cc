#include <gmock/gmock.h>

#include "tests/storage/trace_file.h"

namespace steptape::storage {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class CheckTest : public TraceFileTest {
 protected:
  std::string whole_ = written(trace_of_state(noise(3'000'000)));
  std::vector<Block> blocks_ = blocks_of(whole_);

  void flip(std::uint64_t at) { whole_[at] = static_cast<char>(whole_[at] ^ 4); }
  Report report() {
    put_file(whole_);
    return check(path_);
  }
};

TEST_F(CheckTest, AWholeFileHasNoProblems) {
  const Report found = report();
  EXPECT_TRUE(found.whole());
  EXPECT_EQ(found.format.major, kMajor);
  EXPECT_EQ(found.format.minor, kMinor);
  EXPECT_EQ(found.file_bytes, whole_.size());
  EXPECT_EQ(found.blocks, blocks_.size());
  EXPECT_EQ(found.blocks_missing, 0u);
  EXPECT_EQ(found.bytes_lost, 0u);
  EXPECT_TRUE(found.has_index);
}

TEST_F(CheckTest, EveryDamagedPayloadIsNamed) {
  flip(blocks_[2].payload_offset() + 5);
  flip(blocks_[3].payload_offset() + 5);
  const Report found = report();
  EXPECT_THAT(found.problems,
              ElementsAre(HasSubstr("block 2 at offset"), HasSubstr("block 3 at offset")));
  EXPECT_EQ(found.blocks, blocks_.size() - 2);
  EXPECT_EQ(found.blocks_missing, 2u);
}

TEST_F(CheckTest, TheIndexLeadsPastADamagedHeader) {
  flip(blocks_[2].offset);
  flip(blocks_[4].payload_offset());
  const Report found = report();
  EXPECT_THAT(found.problems,
              ElementsAre(HasSubstr("the header of block 2"), HasSubstr("block 4 at offset")));
  EXPECT_EQ(found.blocks_missing, 2u);
  EXPECT_EQ(found.blocks, blocks_.size() - 2);
  EXPECT_EQ(found.bytes_lost, 0u);
  EXPECT_TRUE(found.has_index);
}

TEST_F(CheckTest, WithoutAnIndexWhatLiesBehindADamagedHeaderIsLost) {
  const std::uint64_t bytes = whole_.size();
  flip(blocks_[2].offset);
  flip(bytes - 1);
  const Report found = report();
  EXPECT_THAT(found.problems, ElementsAre(HasSubstr("the header of block 2")));
  EXPECT_EQ(found.blocks, 2u);
  EXPECT_EQ(found.bytes_lost, bytes - blocks_[2].offset);
  EXPECT_FALSE(found.has_index);
}

TEST_F(CheckTest, ACutFileHasAPrefixAndNoIndex) {
  whole_.resize(blocks_[3].offset + 100);
  const Report found = report();
  EXPECT_THAT(found.problems, ElementsAre(HasSubstr("cut short, or its writer died")));
  EXPECT_EQ(found.blocks, 3u);
  EXPECT_EQ(found.bytes_lost, 100u);
  EXPECT_FALSE(found.has_index);
}

TEST_F(CheckTest, AForeignFileIsAProblemAndNoError) {
  whole_ = "something else entirely";
  EXPECT_THAT(report().problems, ElementsAre(HasSubstr("the file is not a trace")));
}

TEST_F(CheckTest, RightBlocksOfAWrongTraceAreAProblem) {
  Forge forge;
  forge.message(BlockType::kHead, "").message(BlockType::kStep, "");
  whole_ = forge.message(BlockType::kRecording, "").finish();
  EXPECT_THAT(report().problems, ElementsAre(HasSubstr("status 0 is none that exists")));
}

TEST_F(CheckTest, AMissingFileIsAnError) {
  std::filesystem::remove(path_);
  EXPECT_THROW(check(path_), Error);
}

}  // namespace
}  // namespace steptape::storage
