#include "storage/trace/reader.h"

#include <fmt/format.h>

#include "storage/trace/loader.h"
#include "storage/trace/verify.h"

namespace steptape::storage {
namespace {

void require(const std::optional<Problem>& problem) {
  if (problem) throw Error(problem->code, problem->message);
}

}  // namespace

trace::Trace read(const InputFile& file) {
  const Scan found = scan(file);
  require(found.problem);
  const std::vector<std::size_t> damaged = damaged_blocks(file, found.blocks);
  if (!damaged.empty()) {
    const Block& block = found.blocks[damaged.front()];
    throw Error(ErrorCode::kDataLoss,
                fmt::format("block {} at offset {} is damaged: its checksum is wrong",
                            block.sequence, block.offset));
  }
  require(problem_of_index(file, found.blocks));
  return Loader(file, found.blocks, Loss::kThrow).load();
}

trace::Trace read(const std::filesystem::path& path, FileSystem& files) {
  const InputFile file(path, files);
  try {
    return read(file);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kIo) throw;
    throw Error(error.code(), fmt::format("cannot read {}: {}", path.string(), error.what()));
  }
}

std::optional<trace::Trace> recover(const std::filesystem::path& path, Report& report,
                                    FileSystem& files) {
  const InputFile file(path, files);
  report = check(file);
  const Scan found = scan(file);
  if (found.blocks.empty()) return std::nullopt;
  const std::vector<std::size_t> damaged = damaged_blocks(file, found.blocks);
  try {
    Loader loader(file, found.blocks, Loss::kSkip, damaged);
    trace::Trace trace = loader.load();
    report.problems.insert(report.problems.end(), loader.lost().begin(), loader.lost().end());
    return trace;
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kIo) throw;
    report.problems.emplace_back(error.what());
    return std::nullopt;
  }
}

}  // namespace steptape::storage
