#include "storage/trace/scan.h"

#include <fmt/format.h>

#include <algorithm>

namespace steptape::storage {
namespace {

Problem wrong(std::string message) { return {ErrorCode::kDataLoss, std::move(message)}; }
Problem unsupported(std::string message) { return {ErrorCode::kUnsupported, std::move(message)}; }

Problem cut(const InputFile& file, const std::string& where) {
  return wrong(fmt::format("the file ends after {} bytes, {}: it was cut short, or its writer died",
                           file.bytes(), where));
}

bool begins_like_a_trace(const std::string& start) {
  return std::equal(start.begin(), start.begin() + std::min(start.size(), kMagic.size()),
                    kMagic.begin(),
                    [](char a, std::uint8_t b) { return static_cast<std::uint8_t>(a) == b; });
}

std::optional<Problem> problem_of_version(const FormatVersion& version, std::uint32_t order) {
  if (version.major != kMajor) {
    return unsupported(fmt::format("the file has format {}.{}, and this build reads {}.x{}",
                                   version.major, version.minor, kMajor,
                                   version.major > kMajor ? "; a newer Steptape reads it" : ""));
  }
  if (order != kLittleEndian) {
    return unsupported("its tensor bytes are not little-endian, as this machine's are");
  }
  return std::nullopt;
}

std::optional<Problem> scan_file_header(const InputFile& file, Scan& scan) {
  if (file.bytes() == 0) return wrong("the file is empty");
  const std::string start = file.read(0, std::min<std::uint64_t>(file.bytes(), kFileHeaderBytes));
  if (!begins_like_a_trace(start)) {
    return wrong("the file is not a trace: it does not begin as one");
  }
  if (start.size() < kFileHeaderBytes) return cut(file, "in its header");
  const ByteView header = bytes_of(start);
  if (get<std::uint64_t>(header, 16) != checksum_of(header.first(16))) {
    return wrong("the header of the file is damaged: its checksum is wrong");
  }
  scan.format = {get<std::uint16_t>(header, 8), get<std::uint16_t>(header, 10)};
  scan.end = kFileHeaderBytes;
  return problem_of_version(*scan.format, get<std::uint32_t>(header, 12));
}

std::optional<Problem> problem_of_block(const Block& block, std::uint64_t sequence) {
  const std::string where = fmt::format("block {} at offset {}", sequence, block.offset);
  if (block.sequence != sequence) {
    return wrong(fmt::format("{} says that it is block {}", where, block.sequence));
  }
  if (block.length > kMaxPayloadBytes) {
    return wrong(fmt::format("{} has {} bytes, and a block has at most {}", where, block.length,
                             kMaxPayloadBytes));
  }
  if (!block.is_known() && (block.flags & kMustUnderstand) != 0) {
    return unsupported(fmt::format(
        "{} is of type {}, which this build must understand and does not; a newer Steptape does",
        where, block.type));
  }
  if ((block.flags & ~kKnownFlags) != 0) {
    return unsupported(
        fmt::format("{} has flags {:#x}; a newer Steptape may know them", where, block.flags));
  }
  return std::nullopt;
}

std::optional<Problem> scan_footer(const InputFile& file, std::uint64_t index_offset,
                                   std::uint64_t offset) {
  const std::uint64_t left = file.bytes() - offset;
  if (left < kFooterBytes) return cut(file, "in its footer");
  const std::string bytes = file.read(offset, kFooterBytes);
  const std::optional<Footer> footer = decode_footer(bytes_of(bytes));
  if (!footer) return wrong(fmt::format("the footer at offset {} is damaged", offset));
  if (left > kFooterBytes) {
    return wrong(fmt::format("{} bytes stand after the footer", left - kFooterBytes));
  }
  if (footer->index_offset != index_offset || footer->file_bytes != file.bytes()) {
    return wrong(fmt::format(
        "the footer tells of {} bytes with the index at {}; there are {} with the index at {}",
        footer->file_bytes, footer->index_offset, file.bytes(), index_offset));
  }
  return std::nullopt;
}

}  // namespace

std::optional<Block> block_at(const InputFile& file, std::uint64_t offset, std::uint64_t sequence,
                              std::optional<Problem>& problem) {
  if (offset > file.bytes() || file.bytes() - offset < kBlockHeaderBytes) {
    const bool between = offset == file.bytes();
    problem = cut(file, between ? fmt::format("before block {}, and has no index", sequence)
                                : fmt::format("in the header of block {}", sequence));
    return std::nullopt;
  }
  const std::string header = file.read(offset, kBlockHeaderBytes);
  std::optional<Block> block = decode_header(bytes_of(header));
  if (!block) {
    problem =
        wrong(fmt::format("the header of block {} at offset {} is damaged", sequence, offset));
    return std::nullopt;
  }
  block->offset = offset;
  problem = problem_of_block(*block, sequence);
  if (!problem && block->end() > file.bytes()) {
    problem = cut(file, fmt::format("{} bytes before the end of block {}",
                                    block->end() - file.bytes(), sequence));
  }
  return problem ? std::nullopt : block;
}

Scan scan(const InputFile& file) {
  Scan scan;
  scan.problem = scan_file_header(file, scan);
  std::optional<std::uint64_t> index_offset;
  while (!scan.problem) {
    const std::optional<Block> block = block_at(file, scan.end, scan.blocks.size(), scan.problem);
    if (!block) break;
    scan.blocks.push_back(*block);
    scan.end = block->end();
    if (!block->is(BlockType::kIndex)) continue;
    if (!index_offset) index_offset = block->offset;
    if (block->continues()) continue;
    scan.has_index = true;
    scan.problem = scan_footer(file, *index_offset, scan.end);
    break;
  }
  return scan;
}

}  // namespace steptape::storage
