#include <gmock/gmock.h>

#include "tests/storage/memory_file_system.h"
#include "tests/storage/trace_file.h"

namespace steptape::storage {
namespace {

using testing::HasSubstr;

class DamageTest : public TraceFileTest {
 protected:
  /// Small, with tensor bytes, several blocks and everything that a trace may hold.
  const std::string whole_ = written(test::train_trace());

  /// What reading a file of `bytes` throws; in memory, for tests of many files.
  static Error refusal_of(const std::string& bytes) {
    MemoryFileSystem files;
    files.put("run.tape", bytes);
    try {
      read("run.tape", files);
    } catch (const Error& error) {
      return error;
    }
    return Error(ErrorCode::kInternal, "it was read");
  }
};

TEST_F(DamageTest, TruncatedAnywhereIsDataLossThatSaysSo) {
  for (std::size_t length = 0; length < whole_.size(); ++length) {
    const Error error = refusal_of(whole_.substr(0, length));
    ASSERT_EQ(error.code(), ErrorCode::kDataLoss) << length << ": " << error.what();
    ASSERT_THAT(error.what(), length == 0 ? HasSubstr("the file is empty")
                                          : HasSubstr("it was cut short, or its writer died"))
        << length;
  }
}

TEST_F(DamageTest, ABitFlippedAnywhereIsNoticedAndNotTakenForACut) {
  for (std::size_t at = 0; at < whole_.size(); ++at) {
    std::string bytes = whole_;
    bytes[at] = static_cast<char>(bytes[at] ^ (1 << at % 8));
    const Error error = refusal_of(bytes);
    ASSERT_EQ(error.code(), ErrorCode::kDataLoss) << at << ": " << error.what();
    ASSERT_THAT(error.what(), testing::Not(HasSubstr("cut short"))) << at;
  }
}

TEST_F(DamageTest, EveryByteOverwrittenWithZeroIsNoticed) {
  for (std::size_t at = 0; at < whole_.size(); ++at) {
    if (whole_[at] == '\0') continue;
    std::string bytes = whole_;
    bytes[at] = '\0';
    ASSERT_EQ(refusal_of(bytes).code(), ErrorCode::kDataLoss) << at;
  }
}

TEST_F(DamageTest, BytesBehindTheEndAreNoticed) {
  put_file(whole_ + "x");
  EXPECT_THAT(refusal().what(), HasSubstr("1 bytes stand after the footer"));
}

TEST_F(DamageTest, ABlockOfAnotherFileIsNoticed) {
  // Block 2 twice: both checksums hold, its number does not.
  const std::vector<Block> blocks = blocks_of(whole_);
  const std::string block = whole_.substr(blocks[2].offset, blocks[2].bytes());
  std::string bytes = whole_;
  put_file(bytes.insert(blocks[2].end(), block));
  EXPECT_THAT(refusal().what(), HasSubstr("says that it is block 2"));
}

TEST_F(DamageTest, AMissingBlockIsNoticed) {
  const std::vector<Block> blocks = blocks_of(whole_);
  std::string bytes = whole_;
  put_file(bytes.erase(blocks[2].offset, blocks[2].bytes()));
  EXPECT_EQ(refusal().code(), ErrorCode::kDataLoss);
}

TEST_F(DamageTest, AForeignFileIsNoTrace) {
  put_file("#!/bin/sh\necho hello, this is a script and no trace\n");
  EXPECT_EQ(refusal().code(), ErrorCode::kDataLoss);
  EXPECT_THAT(refusal().what(), HasSubstr("the file is not a trace"));
}

TEST_F(DamageTest, AShortForeignFileIsNoTrace) {
  put_file("hi");
  EXPECT_THAT(refusal().what(), HasSubstr("the file is not a trace"));
}

TEST_F(DamageTest, AMissingFileIsAnIoErrorWithItsPath) {
  std::filesystem::remove(path_);
  EXPECT_EQ(refusal().code(), ErrorCode::kIo);
  EXPECT_THAT(refusal().what(), HasSubstr(path_.string()));
  EXPECT_THAT(refusal().what(), HasSubstr("No such file or directory"));
}

TEST_F(DamageTest, AFolderIsAnIoError) {
  path_ = folder_;
  EXPECT_EQ(refusal().code(), ErrorCode::kIo);
}

TEST_F(DamageTest, MessagesNameTheFile) {
  put_file(whole_.substr(0, 100));
  EXPECT_THAT(refusal().what(), HasSubstr("cannot read " + path_.string()));
}

}  // namespace
}  // namespace steptape::storage
