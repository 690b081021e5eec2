#include "tests/fuzz/resealed.h"

#include <algorithm>
#include <functional>

#include "storage/ledger/ledger_record.h"
#include "storage/trace/block.h"
#include "tests/storage/trace_file.h"

namespace steptape::fuzz {
namespace {

using storage::Block;

/// Calls `take` for each block, whose payload is cut where the file ends; where the walk ended.
std::size_t for_each_block(const std::string& bytes,
                           const std::function<void(const Block&, std::string_view)>& take) {
  std::size_t at = storage::kFileHeaderBytes;
  while (at + storage::kBlockHeaderBytes + storage::kFooterBytes <= bytes.size()) {
    const storage::ByteView header = storage::bytes_of(bytes).subspan(at);
    Block block;
    block.offset = at;
    block.type = storage::get<std::uint16_t>(header, 0);
    block.flags = storage::get<std::uint16_t>(header, 2);
    block.length = storage::get<std::uint32_t>(header, 4);
    block.sequence = storage::get<std::uint64_t>(header, 8);
    const std::size_t left = bytes.size() - block.payload_offset();
    const std::size_t there = std::min<std::size_t>(block.length, left);
    take(block, std::string_view(bytes).substr(block.payload_offset(), there));
    at = block.payload_offset() + there;
  }
  return at;
}

}  // namespace

std::string resealed(std::string bytes) {
  if (bytes.size() < storage::kFileHeaderBytes) return bytes;
  const auto replace = [&bytes](std::size_t at, const std::string& text) {
    bytes.replace(at, text.size(), text);
  };
  std::string checksum;
  storage::put(checksum, storage::checksum_of(storage::bytes_of(bytes).first(16)));
  replace(16, checksum);
  const std::string before = bytes;
  const std::size_t end =
      for_each_block(before, [&replace](const Block& block, std::string_view payload) {
        replace(block.offset, encode_header(block, std::as_bytes(std::span(payload))));
      });
  if (end + storage::kFooterBytes == bytes.size()) {
    const storage::ByteView footer = storage::bytes_of(bytes).subspan(end);
    replace(end, storage::encode_footer({storage::get<std::uint64_t>(footer, 0),
                                         storage::get<std::uint64_t>(footer, 8)}));
  }
  return bytes;
}

std::string reforged(const std::string& bytes) {
  storage::Forge forge;
  for_each_block(bytes, [&forge](const Block& block, std::string_view payload) {
    if (block.is(storage::BlockType::kIndex)) return;
    forge.block(block.type, block.flags, std::string(payload));
  });
  return forge.finish();
}

std::string resealed_ledger(std::string bytes) {
  for (std::size_t at = 0; at + storage::kRecordBytes <= bytes.size();
       at += storage::kRecordBytes) {
    std::string record = bytes.substr(at, storage::kRecordBytes - sizeof(std::uint64_t));
    storage::seal(record, at / storage::kRecordBytes, 0);
    bytes.replace(at, record.size(), record);
  }
  return bytes;
}

}  // namespace steptape::fuzz
