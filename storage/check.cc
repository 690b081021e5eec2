#include <fmt/format.h>

#include "storage/reader.h"
#include "storage/verify.h"

namespace steptape::storage {
namespace {

/// Blocks behind the point where the scan had to stop, as far as the index leads to them.
std::uint64_t check_rest(const InputFile& file, const Scan& found, Report& report) {
  std::uint64_t end_of_whole = found.end;
  const auto announced = find_index(file);
  if (!announced) return end_of_whole;
  report.has_index = true;
  for (std::size_t i = found.blocks.size(); i < announced->size(); ++i) {
    std::optional<Problem> problem;
    const std::optional<Block> block = block_at(file, (*announced)[i].offset, i, problem);
    if (block && damaged_blocks(file, {&*block, 1}).empty()) {
      ++report.blocks;
      end_of_whole = block->end();
      continue;
    }
    ++report.blocks_missing;
    if (i == found.blocks.size()) continue;  // what ended the scan
    report.problems.push_back(
        problem ? problem->message
                : fmt::format("block {} at offset {} is damaged: its checksum is wrong", i,
                              block->offset));
  }
  return end_of_whole;
}

void check_blocks(const InputFile& file, const Scan& found, Report& report) {
  const std::vector<std::size_t> damaged = damaged_blocks(file, found.blocks);
  for (std::size_t i : damaged) {
    report.problems.push_back(fmt::format("block {} at offset {} is damaged: its checksum is wrong",
                                          i, found.blocks[i].offset));
  }
  report.blocks = found.blocks.size() - damaged.size();
  report.blocks_missing = damaged.size();
  report.has_index = found.has_index;
  if (!found.problem) return;
  report.problems.push_back(found.problem->message);
  const std::uint64_t end_of_whole = found.has_index ? found.end : check_rest(file, found, report);
  report.bytes_lost = file.bytes() - end_of_whole;
}

}  // namespace

Report check(const std::filesystem::path& path) {
  const InputFile file(path);
  Report report;
  report.file_bytes = file.bytes();
  const Scan found = scan(file);
  if (found.format) report.format = *found.format;
  check_blocks(file, found, report);
  if (!report.whole()) return report;
  try {
    static_cast<void>(read(path));
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kIo) throw;
    report.problems.emplace_back(error.what());
  }
  return report;
}

}  // namespace steptape::storage
