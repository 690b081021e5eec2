#include "storage/loader.h"
#include "storage/opened.h"
#include "storage/verify.h"

namespace steptape::storage {

std::optional<trace::Trace> recover(const std::filesystem::path& path, Report& report,
                                    FileSystem& files) {
  const InputFile file(path, files);
  report = check(file);
  const Scan found = scan(file);
  std::span<const Block> whole = found.blocks;
  const std::vector<std::size_t> damaged = damaged_blocks(file, whole);
  if (!damaged.empty()) whole = whole.first(damaged.front());
  if (whole.empty()) return std::nullopt;
  try {
    Loader loader(file, whole, Loss::kSkip);
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
