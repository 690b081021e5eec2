#include "storage/trace/loader.h"
#include "storage/trace/opened.h"
#include "storage/trace/verify.h"

namespace steptape::storage {

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
