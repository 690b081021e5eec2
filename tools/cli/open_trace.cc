#include "tools/cli/open_trace.h"

#include <fmt/format.h>

#include "steptape/error.h"
#include "storage/trace/reader.h"
#include "tools/cli/output.h"
#include "tools/cli/progress.h"

namespace steptape::tools {
namespace {

std::string reading(const std::filesystem::path& path) {
  std::error_code error;
  const std::uintmax_t bytes = std::filesystem::file_size(path, error);
  return fmt::format("reading {}{}", path.string(),
                     error ? "" : fmt::format(" ({})", size_of(bytes)));
}

trace::Trace read_all(const std::filesystem::path& path) {
  try {
    const Progress progress(reading(path));
    return storage::read(path);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kDataLoss) throw;
    throw Error(
        error.code(),
        fmt::format("{}. `steptape check` lists what is wrong, and `steptape dump --partial` "
                    "shows what is left",
                    error.what()));
  }
}

std::optional<trace::Trace> read_left(const std::filesystem::path& path, storage::Report& report) {
  const Progress progress(reading(path));
  return storage::recover(path, report);
}

}  // namespace

trace::Trace open_trace(const std::filesystem::path& path, Parts parts) {
  if (parts == Parts::kAll) return read_all(path);
  storage::Report report;
  std::optional<trace::Trace> trace = read_left(path, report);
  for (const std::string& problem : report.problems) complain(shown(problem));
  if (trace) return *std::move(trace);
  throw Error(ErrorCode::kDataLoss, fmt::format("nothing is left of {}", path.string()));
}

}  // namespace steptape::tools
