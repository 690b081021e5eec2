#include "storage/trace/block_writer.h"

#include <algorithm>

namespace steptape::storage {

BlockWriter::BlockWriter(Output& out) : out_(out) { out_.append(bytes_of(encode_file_header())); }

std::uint64_t BlockWriter::message(BlockType type, const std::string& bytes) {
  const auto first = static_cast<std::uint64_t>(index_.block_bytes_size());
  ByteView rest = bytes_of(bytes);
  do {
    const ByteView piece = rest.first(std::min(rest.size(), kMaxPayloadBytes));
    rest = rest.subspan(piece.size());
    const std::uint16_t flags = rest.empty() ? kMustUnderstand : kMustUnderstand | kContinues;
    block(static_cast<std::uint16_t>(type), flags, piece);
  } while (!rest.empty());
  return first;
}

void BlockWriter::block(std::uint16_t type, std::uint16_t flags, ByteView payload) {
  Block block;
  block.type = type;
  block.flags = flags;
  block.length = static_cast<std::uint32_t>(payload.size());
  block.sequence = static_cast<std::uint64_t>(index_.block_bytes_size());
  out_.append(bytes_of(encode_header(block, payload)));
  out_.append(payload);
  index_.add_block_bytes(block.bytes());
  index_.add_block_types(block.type);
}

void BlockWriter::finish() {
  const std::uint64_t index_offset = out_.bytes();
  message(BlockType::kIndex, index_.SerializeAsString());
  out_.append(bytes_of(encode_footer({index_offset, out_.bytes() + kFooterBytes})));
}

}  // namespace steptape::storage
