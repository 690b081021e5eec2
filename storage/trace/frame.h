#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "storage/files/wire.h"
#include "storage/trace/format.h"
#include "storage/trace/writer.h"

/// zstd frames, alone and against other bytes.
namespace steptape::storage {

struct Packing {
  int level = 1;
  /// The frame is padded, so that it grows at most so many times when it is unpacked.
  std::uint64_t max_expansion = 1;
};

/// Throws Error (data_loss).
[[noreturn]] void fail_lost(const std::string& what);

/// `raw` packed; what it shares with `base` takes no room, and unpacking needs the same `base`,
/// which may be empty. Gives nothing where that is not smaller than `raw`.
std::string pack(ByteView raw, ByteView base, const Packing& packing);
/// Fills `raw`. Throws Error (data_loss) when the frame holds anything but so many bytes.
void unpack(ByteView frame, ByteView base, std::span<std::byte> raw);

// The payload of a block of type kBytes: a piece of the bytes of one id.
//     0   id      8   the id of the BytesRef
//     8   offset  8   of the piece in the bytes
//     16  raw     4   bytes of the piece once decompressed, at most kMaxRawBytes
//     20  codec   4   0 raw, 1 zstd
//     24  data        to the end of the payload
// Each piece is compressed alone, so that pieces are packed and unpacked in parallel.

inline constexpr std::size_t kChunkHeaderBytes = 24;
inline constexpr std::size_t kMaxRawBytes = kMaxPayloadBytes - 4096;

struct ChunkHeader {
  std::uint64_t id = 0;
  std::uint64_t offset = 0;
  std::uint32_t raw_bytes = 0;
  std::uint32_t codec = 0;
};

/// The payload for `raw`, which holds at most kMaxRawBytes.
std::string encode_chunk(std::uint64_t id, std::uint64_t offset, ByteView raw,
                         Compression compression);
/// Reads kChunkHeaderBytes of a payload of `payload_bytes`. Throws Error (data_loss) when the piece
/// would be larger than the format allows, before anything is allocated for it.
ChunkHeader decode_chunk_header(ByteView payload, std::uint64_t payload_bytes);
/// Writes the piece to `raw`, which has `header.raw_bytes`. Throws Error (data_loss).
void decode_chunk(const ChunkHeader& header, ByteView payload, std::span<std::byte> raw);

}  // namespace steptape::storage
