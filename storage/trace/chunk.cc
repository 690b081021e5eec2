#include "storage/trace/chunk.h"

#include <fmt/format.h>

#include <algorithm>

#include "steptape/error.h"
#include "storage/trace/frame.h"

namespace steptape::storage {
namespace {

constexpr std::uint32_t kRaw = 0;
constexpr std::uint32_t kZstd = 1;
constexpr Packing kChunkPacking = {1, kMaxExpansion};

}  // namespace

std::string encode_chunk(std::uint64_t id, std::uint64_t offset, ByteView raw,
                         Compression compression) {
  const std::string packed =
      compression == Compression::kZstd ? pack(raw, {}, kChunkPacking) : std::string();
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
  if (payload.size() < kChunkHeaderBytes) fail_lost("a piece of tensor bytes has no header");
  const ChunkHeader header{get<std::uint64_t>(payload, 0), get<std::uint64_t>(payload, 8),
                           get<std::uint32_t>(payload, 16), get<std::uint32_t>(payload, 20)};
  const std::uint64_t stored = payload_bytes - kChunkHeaderBytes;
  if (header.codec != kRaw && header.codec != kZstd) {
    fail_lost(
        fmt::format("tensor bytes are packed in way {}, which is none that exists", header.codec));
  }
  if (header.raw_bytes > kMaxRawBytes || header.raw_bytes / kMaxExpansion > stored) {
    fail_lost(fmt::format("{} stored bytes claim to be {}, more than the format allows", stored,
                          header.raw_bytes));
  }
  if (header.codec == kRaw && header.raw_bytes != stored) {
    fail_lost(fmt::format("{} stored bytes claim to be {}", stored, header.raw_bytes));
  }
  return header;
}

void decode_chunk(const ChunkHeader& header, ByteView payload, std::span<std::byte> raw) {
  const ByteView data = payload.subspan(kChunkHeaderBytes);
  if (header.codec == kRaw) {
    std::ranges::copy(data, raw.begin());
    return;
  }
  unpack(data, {}, raw);
}

}  // namespace steptape::storage
