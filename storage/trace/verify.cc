#include "storage/trace/verify.h"

#include <fmt/format.h>
#include <tbb/concurrent_vector.h>
#include <tbb/parallel_for.h>

#include <algorithm>

#include "storage/trace/reader.h"
#include "trace.pb.h"

namespace steptape::storage {
namespace {

bool is_right(const InputFile& file, const Block& block) {
  return payload_is_right(block, bytes_of(file.read(block.payload_offset(), block.length)));
}

/// None where the blocks are smaller than their headers or larger than the file, or the two lists
/// differ in length.
std::optional<std::vector<Announced>> lay_out(const proto::Index& index, std::uint64_t file_bytes) {
  if (index.block_bytes_size() != index.block_types_size()) return std::nullopt;
  std::vector<Announced> announced;
  std::uint64_t offset = kFileHeaderBytes;
  for (int i = 0; i < index.block_bytes_size(); ++i) {
    const std::uint64_t bytes = index.block_bytes(i);
    if (bytes < kBlockHeaderBytes || bytes > file_bytes - offset) return std::nullopt;
    announced.push_back({offset, bytes, index.block_types(i)});
    offset += bytes;
  }
  return announced;
}

/// The blocks of the index, read from `offset` on without knowing their numbers.
std::vector<Block> index_blocks_at(const InputFile& file, std::uint64_t offset) {
  std::vector<Block> blocks;
  while (offset < file.bytes() && file.bytes() - offset >= kBlockHeaderBytes) {
    const std::string header = file.read(offset, kBlockHeaderBytes);
    std::optional<Block> block = decode_header(bytes_of(header));
    if (!block || !block->is(BlockType::kIndex) || block->length > kMaxPayloadBytes) return {};
    block->offset = offset;
    offset = block->end();
    if (offset > file.bytes() || !is_right(file, *block)) return {};
    blocks.push_back(*block);
    if (!block->continues()) return blocks;
  }
  return {};
}

}  // namespace

std::vector<std::size_t> damaged_blocks(const InputFile& file, std::span<const Block> blocks) {
  tbb::concurrent_vector<std::size_t> damaged;
  tbb::parallel_for(std::size_t{0}, blocks.size(), [&](std::size_t i) {
    if (!is_right(file, blocks[i])) damaged.push_back(i);
  });
  std::vector<std::size_t> sorted(damaged.begin(), damaged.end());
  std::ranges::sort(sorted);
  return sorted;
}

std::optional<Index> read_index(const InputFile& file, std::span<const Block> blocks) {
  std::string bytes;
  std::size_t own_blocks = 0;
  for (const Block& block : blocks) {
    if (!block.is(BlockType::kIndex)) continue;
    bytes += file.read(block.payload_offset(), block.length);
    ++own_blocks;
  }
  proto::Index index;
  if (!index.ParseFromString(bytes)) return std::nullopt;
  std::optional<std::vector<Announced>> announced = lay_out(index, file.bytes());
  if (!announced) return std::nullopt;
  return Index{*std::move(announced), own_blocks};
}

std::optional<Index> find_index(const InputFile& file) {
  if (file.bytes() < kFileHeaderBytes + kFooterBytes) return std::nullopt;
  const std::string bytes = file.read(file.bytes() - kFooterBytes, kFooterBytes);
  const std::optional<Footer> footer = decode_footer(bytes_of(bytes));
  if (!footer || footer->file_bytes != file.bytes()) return std::nullopt;
  const std::vector<Block> blocks = index_blocks_at(file, footer->index_offset);
  if (blocks.empty()) return std::nullopt;
  return read_index(file, blocks);
}

std::optional<Problem> problem_of_index(const InputFile& file, std::span<const Block> blocks) {
  const std::optional<Index> index = read_index(file, blocks);
  if (!index) return Problem{ErrorCode::kDataLoss, "the index cannot be read"};
  const std::vector<Announced>& announced = index->announced;
  std::size_t count = 0;
  for (const Block& block : blocks) {
    if (block.is(BlockType::kIndex)) break;
    if (count >= announced.size() || announced[count].offset != block.offset ||
        announced[count].bytes != block.bytes() || announced[count].type != block.type) {
      return Problem{ErrorCode::kDataLoss,
                     fmt::format("the index does not know block {} at offset {} as it is", count,
                                 block.offset)};
    }
    ++count;
  }
  if (count == announced.size()) return std::nullopt;
  return Problem{
      ErrorCode::kDataLoss,
      fmt::format("the index announces {} blocks, and there are {}", announced.size(), count)};
}

namespace {

std::string damage(std::uint64_t sequence, std::uint64_t offset) {
  return fmt::format("block {} at offset {} is damaged: its checksum is wrong", sequence, offset);
}

/// Follows the index past the point where the scan had to stop; false without a whole index.
bool check_rest(const InputFile& file, const Scan& found, Report& report) {
  const std::optional<Index> index = find_index(file);
  if (!index) return false;
  report.has_index = true;
  report.blocks += index->own_blocks;
  for (std::size_t i = found.blocks.size(); i < index->announced.size(); ++i) {
    const std::uint64_t offset = index->announced[i].offset;
    std::optional<Problem> problem;
    const std::optional<Block> block = block_at(file, offset, i, problem);
    if (block && damaged_blocks(file, {&*block, 1}).empty()) {
      ++report.blocks;
      continue;
    }
    ++report.blocks_missing;
    if (i == found.blocks.size()) continue;  // what ended the scan
    report.problems.push_back(problem ? problem->message : damage(i, offset));
  }
  return true;
}

void check_blocks(const InputFile& file, const Scan& found, Report& report) {
  const std::vector<std::size_t> damaged = damaged_blocks(file, found.blocks);
  for (std::size_t i : damaged) {
    report.problems.push_back(damage(i, found.blocks[i].offset));
  }
  report.blocks = found.blocks.size() - damaged.size();
  report.blocks_missing = damaged.size();
  report.has_index = found.has_index;
  if (!found.problem) return;
  report.problems.push_back(found.problem->message);
  if (found.has_index || check_rest(file, found, report)) return;
  report.bytes_lost = file.bytes() - found.end;
}

}  // namespace

Report check(const std::filesystem::path& path, FileSystem& files) {
  return check(InputFile(path, files));
}

Report check(const InputFile& file) {
  Report report;
  report.file_bytes = file.bytes();
  const Scan found = scan(file);
  if (found.format) report.format = *found.format;
  check_blocks(file, found, report);
  if (!report.whole()) return report;
  try {
    static_cast<void>(read(file));
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kIo) throw;
    report.problems.emplace_back(error.what());
  }
  return report;
}

}  // namespace steptape::storage
