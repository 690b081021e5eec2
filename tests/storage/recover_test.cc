#include <gmock/gmock.h>

#include "tests/storage/trace_file.h"

namespace steptape::storage {
namespace {

using testing::Contains;
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

TEST_F(RecoverTest, WhatComesBeforeADamagedPayloadIsKept) {
  const Block& damaged = first_of(BlockType::kSavedState);
  whole_[damaged.payload_offset()] ^= 1;
  const auto found = recovered();
  ASSERT_TRUE(found);
  EXPECT_EQ(found->steps, trace_.steps);
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
