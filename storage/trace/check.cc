#include <fmt/format.h>

#include "storage/trace/reader.h"
#include "storage/trace/verify.h"

namespace steptape::storage {
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
