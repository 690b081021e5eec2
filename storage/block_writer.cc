#include "storage/block_writer.h"

#include <algorithm>

#include "trace.pb.h"

namespace steptape::storage {

BlockWriter::BlockWriter(const std::filesystem::path& path, FileSystem& files)
    : file_(path, files) {
  file_.append(bytes_of(encode_file_header()));
}

void BlockWriter::message(BlockType type, const std::string& bytes) {
  ByteView rest = bytes_of(bytes);
  do {
    const ByteView piece = rest.first(std::min(rest.size(), kMaxPayloadBytes));
    rest = rest.subspan(piece.size());
    const std::uint16_t flags = rest.empty() ? kMustUnderstand : kMustUnderstand | kContinues;
    block(static_cast<std::uint16_t>(type), flags, piece);
  } while (!rest.empty());
}

void BlockWriter::block(std::uint16_t type, std::uint16_t flags, ByteView payload) {
  Block block;
  block.offset = file_.bytes();
  block.type = type;
  block.flags = flags;
  block.length = static_cast<std::uint32_t>(payload.size());
  block.sequence = written_.size();
  file_.append(bytes_of(encode_header(block, payload)));
  file_.append(payload);
  written_.push_back(block);
}

void BlockWriter::finish() {
  const std::uint64_t index_offset = file_.bytes();
  proto::Index index;
  for (const Block& block : written_) {
    index.add_block_bytes(block.bytes());
    index.add_block_types(block.type);
  }
  message(BlockType::kIndex, index.SerializeAsString());
  file_.append(bytes_of(encode_footer({index_offset, file_.bytes() + kFooterBytes})));
  file_.commit();
}

}  // namespace steptape::storage
