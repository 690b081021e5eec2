#include "storage/chunk.h"

#include <fmt/format.h>
#include <zstd.h>

#include <algorithm>

#include "steptape/error.h"

namespace steptape::storage {
namespace {

constexpr std::uint32_t kRaw = 0;
constexpr std::uint32_t kZstd = 1;
constexpr int kLevel = 1;

/// A frame that every zstd decoder passes over, to reach `bytes` in all.
void pad(std::string& frame, std::size_t bytes) {
  constexpr std::uint32_t kSkippable = 0x184d2a50;
  constexpr std::size_t kFrameHeaderBytes = 8;
  if (frame.size() >= bytes) return;
  const std::size_t padding = bytes - frame.size();
  put(frame, kSkippable);
  put(frame, static_cast<std::uint32_t>(std::max(padding, kFrameHeaderBytes) - kFrameHeaderBytes));
  frame.resize(std::max(bytes, frame.size()), '\0');
}

/// Compressed and padded to the format's bound; empty when that is not smaller.
std::string compress(ByteView raw) {
  std::string frame(ZSTD_compressBound(raw.size()), '\0');
  const std::size_t size =
      ZSTD_compress(frame.data(), frame.size(), raw.data(), raw.size(), kLevel);
  if (ZSTD_isError(size)) return {};
  frame.resize(size);
  pad(frame, raw.size() / kMaxExpansion + 1);
  return frame.size() < raw.size() ? frame : std::string();
}

[[noreturn]] void fail(const std::string& what) { throw Error(ErrorCode::kDataLoss, what); }

}  // namespace

std::string encode_chunk(std::uint64_t id, std::uint64_t offset, ByteView raw,
                         Compression compression) {
  const std::string packed = compression == Compression::kZstd ? compress(raw) : std::string();
  std::string payload;
  payload.reserve(kChunkHeaderBytes + raw.size());
  put(payload, id);
  put(payload, offset);
  put(payload, static_cast<std::uint32_t>(raw.size()));
  put(payload, packed.empty() ? kRaw : kZstd);
  if (packed.empty()) {
    payload.append(reinterpret_cast<const char*>(raw.data()), raw.size());
  } else {
    payload += packed;
  }
  return payload;
}

ChunkHeader decode_chunk_header(ByteView payload, std::uint64_t payload_bytes) {
  if (payload.size() < kChunkHeaderBytes) fail("a piece of tensor bytes has no header");
  const ChunkHeader header{get<std::uint64_t>(payload, 0), get<std::uint64_t>(payload, 8),
                           get<std::uint32_t>(payload, 16), get<std::uint32_t>(payload, 20)};
  const std::uint64_t stored = payload_bytes - kChunkHeaderBytes;
  if (header.codec != kRaw && header.codec != kZstd) {
    fail(fmt::format("tensor bytes are packed in way {}, which is none that exists", header.codec));
  }
  if (header.raw_bytes > kMaxRawBytes || header.raw_bytes / kMaxExpansion > stored) {
    fail(fmt::format("{} stored bytes claim to be {}, more than the format allows", stored,
                     header.raw_bytes));
  }
  if (header.codec == kRaw && header.raw_bytes != stored) {
    fail(fmt::format("{} stored bytes claim to be {}", stored, header.raw_bytes));
  }
  return header;
}

void decode_chunk(const ChunkHeader& header, ByteView payload, std::span<std::byte> raw) {
  const ByteView data = payload.subspan(kChunkHeaderBytes);
  if (header.codec == kRaw) {
    std::ranges::copy(data, raw.begin());
    return;
  }
  const std::size_t size = ZSTD_decompress(raw.data(), raw.size(), data.data(), data.size());
  if (ZSTD_isError(size)) fail(fmt::format("zstd cannot unpack: {}", ZSTD_getErrorName(size)));
  if (size != raw.size()) {
    fail(fmt::format("{} bytes came out of zstd where {} were announced", size, raw.size()));
  }
}

}  // namespace steptape::storage
