#include <gtest/gtest.h>

#include "storage/trace/frame.h"
#include "tests/storage/trace_file.h"

namespace steptape::storage {
namespace {

std::vector<std::byte> unpacked(const std::string& payload) {
  const ChunkHeader header = decode_chunk_header(bytes_of(payload), payload.size());
  std::vector<std::byte> raw(header.raw_bytes);
  decode_chunk(header, bytes_of(payload), raw);
  return raw;
}

class ChunkTest : public testing::TestWithParam<std::size_t> {};

TEST_P(ChunkTest, ZerosComeBackAndKeepTheBoundOfExpansion) {
  const std::vector<std::byte> zeros(GetParam());
  const std::string payload = encode_chunk(1, 0, zeros, Compression::kZstd);
  EXPECT_LE(zeros.size() / kMaxExpansion, payload.size() - kChunkHeaderBytes);
  EXPECT_EQ(unpacked(payload), zeros);
}

TEST_P(ChunkTest, NoiseComesBackAndIsNotBlownUp) {
  const trace::Blob blob = noise(GetParam());
  const std::string payload = encode_chunk(1, 0, *blob, Compression::kZstd);
  EXPECT_LE(payload.size(), blob->size() + kChunkHeaderBytes);
  EXPECT_EQ(unpacked(payload), *blob);
}

INSTANTIATE_TEST_SUITE_P(Sizes, ChunkTest,
                         testing::Values(1, 2, 20, 255, 256, 257, 4000, 65536, 1'000'000,
                                         kMaxRawBytes));

TEST(LargestChunkTest, FitsABlock) {
  const std::string payload = encode_chunk(1, 0, *noise(kMaxRawBytes), Compression::kNone);
  EXPECT_LE(payload.size(), kMaxPayloadBytes);
}

}  // namespace
}  // namespace steptape::storage
