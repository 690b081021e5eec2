#include "tests/storage/trace_file.h"

#include <algorithm>

namespace steptape::storage {
namespace {

void put_varint(std::string& out, std::uint64_t number) {
  for (; number >= 128; number >>= 7) out += static_cast<char>(number | 128);
  out += static_cast<char>(number);
}

}  // namespace

Forge& Forge::block(std::uint16_t type, std::uint16_t flags, const std::string& payload) {
  Block block;
  block.offset = bytes_.size();
  block.type = type;
  block.flags = flags;
  block.length = static_cast<std::uint32_t>(payload.size());
  block.sequence = blocks_.size();
  bytes_ += encode_header(block, bytes_of(payload)) + payload;
  blocks_.push_back(block);
  return *this;
}

Forge& Forge::header_of_length(std::uint32_t length) {
  Block block;
  block.type = static_cast<std::uint16_t>(BlockType::kHead);
  block.flags = kMustUnderstand;
  block.length = length;
  block.sequence = blocks_.size();
  bytes_ += encode_header(block, {});
  return *this;
}

std::string Forge::finish() {
  // Index: two packed fields, by hand, as the generated code is storage's own.
  std::string sizes;
  std::string types;
  for (const Block& block : blocks_) {
    put_varint(sizes, block.bytes());
    put_varint(types, block.type);
  }
  std::string index = "\x0a";
  put_varint(index, sizes.size());
  index += sizes + "\x12";
  put_varint(index, types.size());
  index += types;
  const std::uint64_t index_offset = bytes_.size();
  message(BlockType::kIndex, index);
  return bytes_ + encode_footer({index_offset, bytes_.size() + kFooterBytes});
}

std::vector<Block> blocks_of(const std::string& bytes) {
  std::vector<Block> blocks;
  for (std::uint64_t at = kFileHeaderBytes; at + kFooterBytes < bytes.size();) {
    auto block = decode_header(bytes_of(bytes).subspan(at, kBlockHeaderBytes));
    EXPECT_TRUE(block);
    block->offset = at;
    at = block->end();
    blocks.push_back(*block);
  }
  return blocks;
}

trace::Blob noise(std::size_t count) {
  std::vector<std::byte> bytes(count);
  std::uint64_t state = 88172645463325252u;
  for (std::byte& byte : bytes) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    byte = static_cast<std::byte>(state);
  }
  return std::make_shared<const std::vector<std::byte>>(std::move(bytes));
}

trace::Trace trace_of_state(trace::Blob content) {
  trace::Trace trace;
  trace.state.push_back({"model.weight", 0, std::move(content)});
  return trace;
}

}  // namespace steptape::storage
