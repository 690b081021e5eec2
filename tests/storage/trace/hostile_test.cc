#include <gmock/gmock.h>
#include <zstd.h>

#include "storage/trace/frame.h"
#include "tests/storage/message.h"
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
  static std::string saved_of_bytes(std::uint64_t bytes, const std::string& path = "w") {
    return Message().bytes(1, path).message(3, Message().number(2, bytes)).text();
  }
  void put_chunks(const std::vector<std::string>& chunks) {
    Forge forge;
    forge.message(BlockType::kHead, "").message(BlockType::kSavedState, saved_of_bytes(5));
    for (const std::string& chunk : chunks) forge.message(BlockType::kBytes, chunk);
    put_file(forge.finish());
  }
  void put_recording(const Message& recording) {
    Forge forge;
    forge.message(BlockType::kHead, "")
        .message(BlockType::kStep, Message().bytes(1, "train").text());
    put_file(forge.message(BlockType::kRecording, recording.text()).finish());
  }
  /// A recording whose one tensor, of 4-byte numbers, has these sizes in a buffer of these bytes.
  void put_tensor(const std::vector<std::int64_t>& sizes, std::uint64_t bytes) {
    const Message device = Message().number(1, 1);
    Message tensor = Message().number(2, static_cast<std::uint64_t>(trace::DType::kFloat32));
    for (std::int64_t size : sizes) tensor.with_sign(3, size);
    for (std::size_t i = 0; i < sizes.size(); ++i) tensor.with_sign(4, 1);
    put_recording(
        Message()
            .number(1, 2)
            .message(3, Message().number(1, bytes).message(2, device).number(4, 1).bytes(5, "w"))
            .message(4, tensor));
  }
  void expect_data_loss(const std::string& words) const {
    const Error error = refusal();
    EXPECT_EQ(error.code(), ErrorCode::kDataLoss);
    EXPECT_THAT(error.what(), HasSubstr(words));
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
  forge.message(BlockType::kHead, "").message(BlockType::kSavedState, saved_of_bytes(5));
  forge.message(BlockType::kSavedState, saved_of_bytes(4, "v"));
  put_file(forge.message(BlockType::kBytes, chunk(0, 0, 5, 0, "hello")).finish());
  EXPECT_THAT(refusal().what(), HasSubstr("are 5 long in one place and 4 in another"));
}

TEST_F(HostileTest, MessagesOutOfOrderAreWrong) {
  put_file(Forge().message(BlockType::kStep, "").finish());
  EXPECT_THAT(refusal().what(), HasSubstr("the first block is not a head"));
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
  Message value;
  for (int depth = 0; depth < 2000; ++depth) {
    value = Message().message(12, Message().message(1, value));
  }
  put_recording(Message().message(5, Message().message(2, value)));
  EXPECT_THAT(refusal().what(), HasSubstr("the message in block 2 cannot be read"));
}

TEST_F(HostileTest, AWrongModelIsRefusedWithItsPlace) {
  put_recording(Message().number(1, 2).number(8, 99 + 1));
  EXPECT_THAT(refusal().what(),
              HasSubstr("step train, recording 0, result 0: tensor 99, but there are 0"));
}

TEST_F(HostileTest, AnEnumeratorOfManyBitsIsNotCutToFew) {
  // Status 258 must not become 2.
  put_recording(Message().number(1, 258));
  EXPECT_THAT(refusal().what(), HasSubstr("status 258 is none that exists"));
}

TEST_F(HostileTest, WhatTheForgeMakesOfATensorIsATraceOtherwise) {
  put_tensor({3}, 12);
  EXPECT_EQ(read(path_).steps[0].recordings[0].tensors[0].numel(), 3);
}

TEST_F(HostileTest, ATensorBeyondItsBufferIsWrong) {
  put_tensor({4}, 12);
  expect_data_loss("step train, recording 0, tensor 0: ends at byte 16 of buffer 0, which has 12");
}

TEST_F(HostileTest, SizesThatOverflowAreWrong) {
  put_tensor({INT64_MAX / 2, 4}, INT64_MAX);
  expect_data_loss("tensor 0");
  put_tensor({INT64_MAX, INT64_MAX, 0}, 12);
  EXPECT_NO_THROW(read(path_)) << "no element, no overflow";
  put_tensor({INT64_MAX}, INT64_MAX);
  expect_data_loss("tensor 0");
}

TEST_F(HostileTest, SizesThatAreNegativeAreWrong) {
  put_tensor({-1}, 12);
  expect_data_loss("size -1 is negative");
  put_tensor({INT64_MIN, 2}, 12);
  expect_data_loss("is negative");
}

TEST_F(HostileTest, ABufferThatNoMemoryHoldsIsWrong) {
  put_tensor({3}, UINT64_MAX);
  expect_data_loss("18446744073709551615 bytes, more than any memory holds");
}

TEST_F(HostileTest, PiecesOfOneIdTwiceAreWrong) {
  put_chunks({chunk(0, 0, 5, 0, "hello"), chunk(0, 0, 5, 0, "hello")});
  expect_data_loss("holds tensor bytes from 0 on, and 5 come next");
}

TEST_F(HostileTest, PiecesWhoseEndOverflowsAreWrong) {
  put_chunks({chunk(0, 0, 5, 0, "hello"), chunk(0, UINT64_MAX, 1, 0, "h")});
  expect_data_loss("holds tensor bytes from 18446744073709551615 on, and 5 come next");
}

TEST_F(HostileTest, ThingsOfOneNameAreWrong) {
  Forge forge;
  const std::string step = Message().bytes(1, "train").text();
  forge.message(BlockType::kHead, "").message(BlockType::kStep, step);
  put_file(forge.message(BlockType::kStep, step).finish());
  expect_data_loss("step train: another step has the same name");

  Forge states;
  states.message(BlockType::kHead, "").message(BlockType::kSavedState, saved_of_bytes(0));
  put_file(states.message(BlockType::kSavedState, saved_of_bytes(0)).finish());
  expect_data_loss("`w` was saved before");
}

TEST_F(HostileTest, AStepThatGoesOnBeforeItBeganIsWrong) {
  Forge forge;
  const std::string train = Message().bytes(1, "train").text();
  const std::string recording = Message().number(1, 2).text();
  forge.message(BlockType::kHead, "").message(BlockType::kStep, train);
  forge.message(BlockType::kStepAgain, train).message(BlockType::kRecording, recording);
  forge.message(BlockType::kStepAgain, Message().bytes(1, "eval").text());
  put_file(forge.message(BlockType::kRecording, recording).finish());
  expect_data_loss("step eval goes on in block 4, and began nowhere before");
  Report report;
  const auto found = recover(path_, report);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->find_step("train")->recordings.size(), 1u);
  EXPECT_EQ(found->find_step("eval")->recordings.size(), 1u);
}

TEST_F(HostileTest, TwoGibibytesThatAreNotThereAreWrong) {
  constexpr std::uint64_t kTwoGiB = std::uint64_t{1} << 31;
  put_file(Forge().header_of_length(kTwoGiB).unfinished());
  expect_data_loss("has 2147483648 bytes, and a block has at most 1048576");
  put_file(Forge().message(BlockType::kHead, Message().announce(1, kTwoGiB).text()).finish());
  expect_data_loss("the message in block 0 cannot be read");
  Forge forge;
  forge.message(BlockType::kHead, "").message(BlockType::kSavedState, saved_of_bytes(kTwoGiB));
  put_file(forge.finish());
  expect_data_loss("0 of 2147483648 tensor bytes are there");
}

TEST_F(HostileTest, AFooterThatPointsBackIsWrong) {
  // Whoever followed it would come by the same blocks for ever.
  for (std::uint64_t index_offset : {std::uint64_t{0}, kFileHeaderBytes + 0ul, UINT64_MAX}) {
    std::string bytes = Forge().message(BlockType::kHead, "").finish();
    bytes.resize(bytes.size() - kFooterBytes);
    put_file(bytes + encode_footer({index_offset, bytes.size() + kFooterBytes}));
    expect_data_loss("the footer tells of");
    EXPECT_FALSE(check(path_).whole());
  }
}

TEST_F(HostileTest, AnIndexOfBlocksThatCannotBeIsNotFollowed) {
  for (std::uint64_t bytes : {std::uint64_t{0}, kBlockHeaderBytes - 1, UINT64_MAX}) {
    Forge forge;
    forge.message(BlockType::kHead, "");
    const std::uint64_t index_offset = forge.unfinished().size();
    std::string sizes;
    Message::put_varint(sizes, bytes);
    Message::put_varint(sizes, bytes);
    const Message index = Message().bytes(1, sizes).bytes(2, "\1\1");
    std::string file = forge.message(BlockType::kIndex, index.text()).unfinished();
    file += encode_footer({index_offset, file.size() + kFooterBytes});
    put_file(file);
    expect_data_loss("the index cannot be read");
    file[kFileHeaderBytes] ^= 1;
    put_file(file);
    EXPECT_FALSE(check(path_).has_index);
  }
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
