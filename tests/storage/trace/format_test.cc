#include "storage/trace/format.h"

#include <gmock/gmock.h>

#include "tests/storage/trace_file.h"

namespace steptape::storage {
namespace {

using testing::HasSubstr;

/// A file's header with other numbers and the right checksum.
std::string header(std::uint16_t major, std::uint16_t minor, std::uint32_t order) {
  std::string bytes = encode_file_header().substr(0, kMagic.size());
  put(bytes, major);
  put(bytes, minor);
  put(bytes, order);
  put(bytes, checksum_of(bytes_of(bytes)));
  return bytes;
}

class FormatTest : public TraceFileTest {
 protected:
  void write_with_header(const std::string& header) {
    std::string bytes = written(test::train_trace());
    put_file(bytes.replace(0, header.size(), header));
  }
};

TEST_F(FormatTest, HeaderIsAsThePageSays) {
  const std::string bytes = written({});
  EXPECT_EQ(bytes.substr(0, 16), std::string("\x89TAPE\r\n\x1a\x03\0\x04\0\x01\0\0\0", 16));
}

TEST_F(FormatTest, ANewerMinorVersionIsRead) {
  write_with_header(header(kMajor, kMinor + 7, kLittleEndian));
  EXPECT_EQ(read(path_), test::train_trace());
}

TEST_F(FormatTest, ANewerMajorVersionIsUnsupported) {
  write_with_header(header(kMajor + 1, 0, kLittleEndian));
  EXPECT_EQ(refusal().code(), ErrorCode::kUnsupported);
  EXPECT_THAT(refusal().what(), HasSubstr("the file has format 4.0, and this build reads 3.x"));
}

TEST_F(FormatTest, AnotherOrderOfBytesIsUnsupported) {
  write_with_header(header(kMajor, kMinor, 2));
  EXPECT_EQ(refusal().code(), ErrorCode::kUnsupported);
}

TEST_F(FormatTest, AnUnknownBlockThatMayBeSkippedIsSkipped) {
  put_file(Forge().message(BlockType::kHead, "").block(77, 0, "news").finish());
  EXPECT_EQ(read(path_), trace::Trace());
  EXPECT_TRUE(check(path_).whole());
}

TEST_F(FormatTest, AnUnknownBlockThatMustBeUnderstoodIsUnsupported) {
  put_file(Forge().message(BlockType::kHead, "").block(77, kMustUnderstand, "news").finish());
  EXPECT_EQ(refusal().code(), ErrorCode::kUnsupported);
  EXPECT_THAT(refusal().what(), HasSubstr("block 1 at offset 56 is of type 77"));
}

TEST_F(FormatTest, UnknownFlagsAreUnsupported) {
  put_file(Forge().block(1, kMustUnderstand | 0x10, "").finish());
  EXPECT_EQ(refusal().code(), ErrorCode::kUnsupported);
}

TEST_F(FormatTest, AnUnknownMessageFieldIsPassedOver) {
  put_file(Forge().message(BlockType::kHead, std::string("\xfa\x07\x02hi")).finish());
  EXPECT_EQ(read(path_), trace::Trace());
}

}  // namespace
}  // namespace steptape::storage
