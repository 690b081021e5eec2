#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "storage/files/wire.h"
#include "storage/trace/format.h"

namespace steptape::storage {

/// The header of a block, and where the block lies.
struct Block {
  std::uint64_t offset = 0;  ///< of the header, from the start of the file
  std::uint16_t type = 0;
  std::uint16_t flags = 0;
  std::uint32_t length = 0;
  std::uint64_t sequence = 0;
  std::uint64_t checksum = 0;  ///< of the header's first 16 bytes and the payload

  bool is(BlockType other) const noexcept { return type == static_cast<std::uint16_t>(other); }
  bool is_known() const noexcept {
    return type >= static_cast<std::uint16_t>(BlockType::kHead) &&
           type <= static_cast<std::uint16_t>(BlockType::kWindows);
  }
  bool continues() const noexcept { return (flags & kContinues) != 0; }
  std::uint64_t payload_offset() const noexcept { return offset + kBlockHeaderBytes; }
  std::uint64_t end() const noexcept { return payload_offset() + length; }
  std::uint64_t bytes() const noexcept { return kBlockHeaderBytes + std::uint64_t{length}; }
};

std::uint64_t checksum_of(ByteView bytes) noexcept;

/// The 32 bytes of `block`'s header; fills in its checksum of `payload`.
std::string encode_header(const Block& block, ByteView payload);
/// Reads 32 bytes; none when their checksum is wrong.
std::optional<Block> decode_header(ByteView header);
/// Whether `payload` is what the block's checksum was taken of.
bool payload_is_right(const Block& block, ByteView payload);

std::string encode_file_header();

struct Footer {
  std::uint64_t index_offset = 0;
  std::uint64_t file_bytes = 0;
};
std::string encode_footer(const Footer& footer);
/// Reads 32 bytes; none when they are no footer.
std::optional<Footer> decode_footer(ByteView bytes);

}  // namespace steptape::storage
