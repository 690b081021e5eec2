#include <gmock/gmock.h>
#include <zstd.h>

#include "storage/chunk.h"
#include "tests/storage/trace_file.h"

namespace steptape::storage {
namespace {

using testing::HasSubstr;

/// Files whose checksums all hold and whose numbers lie.
class HostileTest : public TraceFileTest {
 protected:
  static std::string chunk(std::uint64_t id, std::uint64_t offset, std::uint32_t raw,
                           std::uint32_t codec, const std::string& data) {
    std::string payload;
    put(payload, id);
    put(payload, offset);
    put(payload, raw);
    put(payload, codec);
    return payload + data;
  }
  /// A protobuf field that holds bytes or a message.
  static std::string field(char tag, const std::string& content) {
    std::string out(1, tag);
    std::size_t size = content.size();
    for (; size >= 128; size >>= 7) out += static_cast<char>(size | 128);
    return out + static_cast<char>(size) + content;
  }
  /// SavedState{path: "w", content: {id: 0, bytes: 5}}.
  static std::string saved_of_five_bytes() { return std::string("\x0a\x01w\x1a\x02\x10\x05", 7); }
  void put_chunks(const std::vector<std::string>& chunks) {
    Forge forge;
    forge.message(BlockType::kHead, "").message(BlockType::kSavedState, saved_of_five_bytes());
    for (const std::string& chunk : chunks) forge.message(BlockType::kBytes, chunk);
    put_file(forge.finish());
  }
};

TEST_F(HostileTest, WhatTheForgeMakesIsATraceOtherwise) {
  put_chunks({chunk(0, 0, 2, 0, "he"), chunk(0, 2, 3, 0, "llo")});
  EXPECT_EQ(read(path_).state[0].content->size(), 5u);
}

TEST_F(HostileTest, ALengthBeyondTheFileIsACut) {
  put_file(Forge().header_of_length(1'000'000).unfinished());
  EXPECT_THAT(refusal().what(), HasSubstr("1000000 bytes before the end of block 0"));
}

TEST_F(HostileTest, ALengthBeyondTheFormatIsWrong) {
  put_file(Forge().header_of_length(0xffffffff).unfinished());
  EXPECT_THAT(refusal().what(), HasSubstr("a block has at most 1048576"));
}

TEST_F(HostileTest, PiecesThatLeaveAGapAreWrong) {
  put_chunks({chunk(0, 0, 2, 0, "he"), chunk(0, 3, 2, 0, "lo")});
  EXPECT_THAT(refusal().what(), HasSubstr("holds tensor bytes from 3 on, and 2 come next"));
}

TEST_F(HostileTest, PiecesThatOverlapAreWrong) {
  put_chunks({chunk(0, 0, 3, 0, "hel"), chunk(0, 2, 2, 0, "lo")});
  EXPECT_EQ(refusal().code(), ErrorCode::kDataLoss);
}

TEST_F(HostileTest, MissingPiecesAreWrong) {
  put_chunks({chunk(0, 0, 2, 0, "he")});
  EXPECT_THAT(refusal().what(), HasSubstr("2 of 5 tensor bytes are there"));
  put_chunks({});
  EXPECT_THAT(refusal().what(), HasSubstr("0 of 5 tensor bytes are there"));
}

TEST_F(HostileTest, AnUnknownPackingIsWrong) {
  put_chunks({chunk(0, 0, 5, 2, "hello")});
  EXPECT_THAT(refusal().what(), HasSubstr("packed in way 2"));
}

TEST_F(HostileTest, ARawPieceOfAnotherSizeIsWrong) {
  put_chunks({chunk(0, 0, 5, 0, "hell")});
  EXPECT_THAT(refusal().what(), HasSubstr("4 stored bytes claim to be 5"));
}

TEST_F(HostileTest, APieceWithoutItsHeaderIsWrong) {
  put_chunks({"short"});
  EXPECT_THAT(refusal().what(), HasSubstr("has no header"));
}

std::string packed(std::size_t zeros) {
  const std::string raw(zeros, '\0');
  std::string out(ZSTD_compressBound(zeros), '\0');
  out.resize(ZSTD_compress(out.data(), out.size(), raw.data(), raw.size(), 19));
  return out;
}

TEST_F(HostileTest, APieceThatPromisesTooMuchIsRefusedUnopened) {
  put_chunks({chunk(0, 0, 1'000'000, 1, packed(1'000'000))});
  EXPECT_THAT(refusal().what(), HasSubstr("claim to be 1000000, more than the format allows"));
}

TEST_F(HostileTest, APieceThatHoldsMoreThanItPromisesIsRefused) {
  put_chunks({chunk(0, 0, 5, 1, packed(100'000'000))});
  EXPECT_THAT(refusal().what(), HasSubstr("zstd cannot unpack"));
}

TEST_F(HostileTest, APieceThatHoldsLessThanItPromisesIsRefused) {
  put_chunks({chunk(0, 0, 5, 1, packed(4))});
  EXPECT_THAT(refusal().what(), HasSubstr("4 bytes came out of zstd where 5 were announced"));
}

TEST_F(HostileTest, WhatIsNoZstdIsRefused) {
  put_chunks({chunk(0, 0, 5, 1, "rubbish")});
  EXPECT_THAT(refusal().what(), HasSubstr("zstd cannot unpack"));
}

TEST_F(HostileTest, OneIdOfTwoSizesIsWrong) {
  Forge forge;
  forge.message(BlockType::kHead, "").message(BlockType::kSavedState, saved_of_five_bytes());
  forge.message(BlockType::kSavedState, std::string("\x0a\x01v\x1a\x02\x10\x04", 7));
  put_file(forge.message(BlockType::kBytes, chunk(0, 0, 5, 0, "hello")).finish());
  EXPECT_THAT(refusal().what(), HasSubstr("are 5 long in one place and 4 in another"));
}

TEST_F(HostileTest, MessagesOutOfOrderAreWrong) {
  put_file(Forge().message(BlockType::kStep, "").finish());
  EXPECT_THAT(refusal().what(), HasSubstr("the first block is no head"));
  put_file(Forge().message(BlockType::kHead, "").message(BlockType::kHead, "").finish());
  EXPECT_THAT(refusal().what(), HasSubstr("more than one head"));
  put_file(Forge().message(BlockType::kHead, "").message(BlockType::kRecording, "").finish());
  EXPECT_THAT(refusal().what(), HasSubstr("before the first step"));
}

TEST_F(HostileTest, AMessageThatGoesOnInAnotherIsWrong) {
  Forge forge;
  forge.block(1, kMustUnderstand | kContinues, "").message(BlockType::kStep, "");
  put_file(forge.finish());
  EXPECT_THAT(refusal().what(), HasSubstr("goes on, and the next one does not"));
}

TEST_F(HostileTest, WhatIsNoMessageIsRefused) {
  put_file(Forge().message(BlockType::kHead, "\xff\xff\xff").finish());
  EXPECT_THAT(refusal().what(), HasSubstr("the message in block 0 cannot be read"));
}

TEST_F(HostileTest, MessagesNestedWithoutEndAreRefused) {
  // A recording with an op with an input with a list with a value with a list with a value ...
  std::string value;
  for (int depth = 0; depth < 2000; ++depth) value = field('\x62', field('\x0a', value));
  Forge forge;
  forge.message(BlockType::kHead, "").message(BlockType::kStep, "");
  put_file(forge.message(BlockType::kRecording, field('\x2a', field('\x12', value))).finish());
  EXPECT_THAT(refusal().what(), HasSubstr("the message in block 2 cannot be read"));
}

TEST_F(HostileTest, AWrongModelIsRefusedWithItsPlace) {
  // Recording{standing: 2, results: [99 + 1]}.
  Forge forge;
  forge.message(BlockType::kHead, "").message(BlockType::kStep, "\x0a\x05train");
  put_file(forge.message(BlockType::kRecording, "\x08\x02\x42\x01\x64").finish());
  EXPECT_THAT(refusal().what(),
              HasSubstr("step train, recording 0, result 0: tensor 99, but there are 0"));
}

TEST_F(HostileTest, AnEnumeratorOfManyBitsIsNotCutToFew) {
  // Standing 258 must not become 2.
  Forge forge;
  forge.message(BlockType::kHead, "").message(BlockType::kStep, "");
  put_file(forge.message(BlockType::kRecording, "\x08\x82\x02").finish());
  EXPECT_THAT(refusal().what(), HasSubstr("standing 258 is none that exists"));
}

TEST_F(HostileTest, AnIndexThatContradictsTheFileIsWrong) {
  Forge forge;
  forge.message(BlockType::kHead, "");
  const std::uint64_t index_offset = forge.unfinished().size();
  forge.message(BlockType::kIndex, "");
  std::string bytes = forge.unfinished();
  bytes += encode_footer({index_offset, bytes.size() + kFooterBytes});
  put_file(bytes);
  EXPECT_THAT(refusal().what(), HasSubstr("the index does not know block 0"));
}

}  // namespace
}  // namespace steptape::storage
