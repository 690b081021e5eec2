#include "tests/storage/trace_file.h"

#include "tests/storage/message.h"

namespace steptape::storage {
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
  std::string sizes;
  std::string types;
  for (const Block& block : blocks_) {
    Message::put_varint(sizes, block.bytes());
    Message::put_varint(types, block.type);
  }
  const std::uint64_t index_offset = bytes_.size();
  message(BlockType::kIndex, Message().bytes(1, sizes).bytes(2, types).text());
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
