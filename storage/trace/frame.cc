#include "storage/trace/frame.h"

#include <fmt/format.h>
#include <zstd.h>

#include <algorithm>
#include <bit>
#include <memory>
#include <new>

#include "steptape/error.h"

namespace steptape::storage {
namespace {

struct Free {
  void operator()(ZSTD_CCtx* context) const { ZSTD_freeCCtx(context); }
  void operator()(ZSTD_DCtx* context) const { ZSTD_freeDCtx(context); }
};

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

/// Of two to the power: the window has to reach back to the start of the base.
int window_for(std::size_t bytes) {
  const ZSTD_bounds bounds = ZSTD_cParam_getBounds(ZSTD_c_windowLog);
  return std::clamp(static_cast<int>(std::bit_width(bytes)), bounds.lowerBound, bounds.upperBound);
}

void refer_to(ZSTD_CCtx* context, ByteView base, std::size_t raw_bytes) {
  if (base.empty()) return;
  ZSTD_CCtx_setParameter(context, ZSTD_c_windowLog, window_for(base.size() + raw_bytes));
  ZSTD_CCtx_setParameter(context, ZSTD_c_enableLongDistanceMatching, 1);
  ZSTD_CCtx_refPrefix(context, base.data(), base.size());
}

}  // namespace

void fail_lost(const std::string& what) { throw Error(ErrorCode::kDataLoss, what); }

std::string pack(ByteView raw, ByteView base, const Packing& packing) {
  const std::unique_ptr<ZSTD_CCtx, Free> context(ZSTD_createCCtx());
  if (!context) throw std::bad_alloc();
  ZSTD_CCtx_setParameter(context.get(), ZSTD_c_compressionLevel, packing.level);
  refer_to(context.get(), base, raw.size());
  std::string frame(ZSTD_compressBound(raw.size()), '\0');
  const std::size_t size =
      ZSTD_compress2(context.get(), frame.data(), frame.size(), raw.data(), raw.size());
  if (ZSTD_isError(size) != 0) return {};
  frame.resize(size);
  pad(frame, raw.size() / packing.max_expansion + 1);
  return frame.size() < raw.size() ? frame : std::string();
}

void unpack(ByteView frame, ByteView base, std::span<std::byte> raw) {
  const std::unique_ptr<ZSTD_DCtx, Free> context(ZSTD_createDCtx());
  if (!context) throw std::bad_alloc();
  if (!base.empty()) ZSTD_DCtx_refPrefix(context.get(), base.data(), base.size());
  const std::size_t size =
      ZSTD_decompressDCtx(context.get(), raw.data(), raw.size(), frame.data(), frame.size());
  if (ZSTD_isError(size) != 0) {
    fail_lost(fmt::format("zstd cannot unpack: {}", ZSTD_getErrorName(size)));
  }
  if (size != raw.size()) {
    fail_lost(fmt::format("{} bytes came out of zstd where {} were announced", size, raw.size()));
  }
}

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
